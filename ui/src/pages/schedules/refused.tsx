// The schedules that a change would leave as they are, with the reason of each.

import type { RefusedItem } from "../../api/schema";
import { counted, countText } from "../../time/format";

const MOST = 5;

export function RefusedList({ refused }: { refused: RefusedItem[] }) {
  if (refused.length === 0) return null;
  return (
    <>
      <p>{counted(refused.length, "schedule")} would be refused:</p>
      <ul class="sample" aria-label="Would be refused">
        {refused.slice(0, MOST).map(({ tenant, id, why }) => (
          <li key={`${tenant}/${id}`}>
            <strong>{id}</strong> <span class="muted">{why}</span>
          </li>
        ))}
        {refused.length > MOST && <li class="muted">and {countText(refused.length - MOST)} more</li>}
      </ul>
    </>
  );
}
