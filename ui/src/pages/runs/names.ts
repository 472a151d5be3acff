// Short forms of ids. Pure.

const LONGEST = 14;

/** Return the end of an id, by which neighbours differ: "…4f2c91ab07de5". */
export function shortId(id: string): string {
  const letters = [...id];
  return letters.length <= LONGEST ? id : `…${letters.slice(1 - LONGEST).join("")}`;
}
