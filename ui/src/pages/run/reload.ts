import { useEffect, useRef } from "preact/hooks";
import type { Data } from "../../live/data";

/** Load data again whenever a value changes. The first value is loaded anyway. */
export function useReload(data: Data<unknown>, value: string): void {
  const last = useRef(value);
  useEffect(() => {
    if (last.current !== value) data.reload();
    last.current = value;
  }, [value]);
}
