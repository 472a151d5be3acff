// A text of a filter: it is in the URL, and counts a moment after the last key, or with Enter.

import { useEffect, useId, useState } from "preact/hooks";
import { setQuery, useRoute } from "../state/route";

const WAIT = 350;

interface FilterTextProps {
  /** The name of the parameter. */
  name: string;
  label: string;
  placeholder?: string;
  /** The id of a <datalist> with proposals. */
  list?: string;
  kind?: "text" | "search";
}

export function FilterText({ name, label, placeholder = "", list, kind = "text" }: FilterTextProps) {
  const stored = useRoute().query.get(name) ?? "";
  const [text, setText] = useState(stored);
  const tell = (): void => setQuery({ [name]: text.trim(), cursor: null });
  useEffect(() => setText(stored), [stored]);
  useEffect(() => {
    if (text.trim() === stored) return undefined;
    const timer = setTimeout(tell, WAIT);
    return () => clearTimeout(timer);
  }, [text]);
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type={kind}
        autocomplete="off"
        placeholder={placeholder}
        {...(list === undefined ? {} : { list })}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") tell();
        }}
      />
    </div>
  );
}
