import type { ComponentChildren } from "preact";
import { Command } from "./copy";

/** What a view shows when there is nothing: a sentence, and the command that changes it. */
export function Empty({ children, command }: { children: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <p>{children}</p>
      {command && <Command text={command} />}
    </div>
  );
}
