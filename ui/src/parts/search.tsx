// A search box. It tells what was typed a moment after the last key.

import { useEffect, useRef, useState } from "preact/hooks";

const WAIT = 150;

export function SearchBox({ label, value, onText }: { label: string; value: string; onText: (text: string) => void }) {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const latest = useRef(onText);
  latest.current = onText;
  useEffect(() => {
    // The address changed by other means: a link, or the button Back.
    if (value !== told.current) {
      told.current = value;
      setText(value);
    }
  }, [value]);
  useEffect(() => {
    if (text === told.current) return undefined;
    const timer = setTimeout(() => {
      told.current = text;
      latest.current(text);
    }, WAIT);
    return () => clearTimeout(timer);
  }, [text]);
  return <input type="search" class="search" aria-label={label} placeholder={`${label}  ( / )`} value={text} onInput={(event) => setText(event.currentTarget.value)} />;
}
