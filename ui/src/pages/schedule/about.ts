// What all parts of the page know about the schedule.

import { useEffect, useRef } from "preact/hooks";
import type { Schedule } from "../../api/schema";
import type { Data } from "../../live/data";

export interface About {
  tenant: string;
  name: string;
  /** The zone of its trigger. */
  zone: string;
  /** Counts the changes of its definition. */
  revision: number;
  state: Schedule["state"];
  createdAt: string;
}

/** Load data again at once when the schedule was changed. Figures that grow with each run are loaded at intervals. */
export function useReloadOnChange(data: Data<unknown>, revision: number): void {
  const last = useRef(revision);
  useEffect(() => {
    if (last.current === revision) return;
    last.current = revision;
    data.reload();
  }, [revision]);
}
