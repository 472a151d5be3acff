// Texts to copy. navigator.clipboard exists only on https and on loopback addresses; elsewhere the browser
// copies the selection.

import { useRef, useState } from "preact/hooks";
import { Button } from "./button";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [isDone, setDone] = useState(false);
  const button = useRef<HTMLSpanElement>(null);
  const copy = async (): Promise<void> => {
    const done = await copied(text, button.current);
    setDone(done);
    setTimeout(() => setDone(false), 2_000);
  };
  return (
    <span ref={button}>
      <Button kind="quiet" small onClick={() => void copy()}>
        {isDone ? "Copied" : label}
      </Button>
    </span>
  );
}

async function copied(text: string, near: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A dialog keeps the focus inside, so the text has to be selected beside the button.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off-screen";
    (near ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A command for the terminal, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code>{text}</code>
      <CopyButton text={text} />
    </div>
  );
}
