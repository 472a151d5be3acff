import { countText } from "../../time/format";

/** Return progress in words: "30 of 120, 25 %"; without a total "30 done"; of a total of 1 the share alone. */
export function progressText({ done, total }: { done: number; total: number | null }): string {
  if (total === null) return `${countText(done)} done`;
  if (total === 0) return `${countText(done)} of 0`;
  const share = `${Math.floor((Math.min(done, total) / total) * 100)} %`;
  return total === 1 ? share : `${countText(done)} of ${countText(total)}, ${share}`;
}
