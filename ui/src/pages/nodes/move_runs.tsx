// Moves the queued runs of a task that no live node has to another task. Counts them first.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { MoveResult } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { TextField } from "../../parts/field";
import { notify } from "../../parts/notice";
import { counted } from "../../time/format";

interface MoveProps {
  task: string;
  tenant: string;
  onClose: () => void;
}

export function MoveRunsDialog({ task, tenant, onClose }: MoveProps) {
  const [to, setTo] = useState("");
  const [found, setFound] = useState<MoveResult | null>(null);
  const move = useAction(async () => {
    const result = await call("POST /runs/move", { query: { tenant }, body: { task, to, dry_run: found === null } });
    if (found === null) {
      setFound(result);
      return;
    }
    const refused = result.refused.length === 0 ? "" : ` ${counted(result.refused.length, "run")} could not be moved.`;
    notify(`Moved ${counted(result.done, "run")} to ${to}.${refused}`);
    onClose();
  });
  const rename = (text: string): void => {
    setTo(text);
    setFound(null);
  };
  return (
    <ActionDialog
      title={`Move the queued runs of ${task}`}
      verb={found === null ? "Count the runs" : `Move ${counted(found.matched, "run")}`}
      disabled={to.trim() === "" || found?.matched === 0}
      isBusy={move.isBusy}
      error={move.error}
      onSubmit={() => void move.run()}
      onClose={onClose}
    >
      <p>For a task that was renamed: its queued runs become runs of another task. Running runs stay as they are.</p>
      <TextField label="To the task" mono value={to} onText={rename} />
      {found !== null && <Found found={found} task={task} />}
    </ActionDialog>
  );
}

function Found({ found, task }: { found: MoveResult; task: string }) {
  return (
    <div role="status" class="stack">
      <p>{found.matched === 0 ? `No queued run has the task ${task}.` : `${counted(found.matched, "run")} of ${task} ${found.matched === 1 ? "is" : "are"} queued.`}</p>
      {found.warnings.map(({ problem, hint }) => (
        <p key={problem}>
          Note: {problem}
          {hint !== null && `; ${hint}`}
        </p>
      ))}
      {found.schedules.length > 0 && (
        <>
          <p>These schedules still add runs of {task}; edit them, too:</p>
          <ul class="plain-list">
            {found.schedules.map(({ tenant, name, command }) => (
              <li key={`${tenant} ${name}`}>
                <code>{command}</code>
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
