import { Command } from "../../parts/copy";
import { asSentence, remedyParts } from "./sentences";

/** What to do: words, and the command to copy if there is one. */
export function Remedy({ text }: { text: string | null }) {
  if (text === null) return null;
  const { words, command } = remedyParts(text);
  return (
    <div class="stack">
      {words && <p>{command === null ? asSentence(words) : asSentence(words).replace(/\.$/, ":")}</p>}
      {command && <Command text={command} />}
    </div>
  );
}
