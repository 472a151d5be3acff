// Bulk changes of runs, in batches: the page shows how far they are, and can stop between two of them.

export interface Changed {
  tenant: string;
  id: string;
}

export interface Refused extends Changed {
  why: string;
}

export interface Outcome {
  changed: Changed[];
  refused: Refused[];
  /** Ids that did not match any more when their batch was sent. */
  gone: string[];
}

export interface BatchAnswer {
  changed: Changed[];
  refused: Refused[];
}

export const BATCH = 100;

export function chunks<T>(items: T[], size: number): T[][] {
  const made: T[][] = [];
  for (let start = 0; start < items.length; start += size) made.push(items.slice(start, start + size));
  return made;
}

/** Send batches one after another. Ends early when `goesOn` says so; throws what `send` throws. */
export async function inBatches(
  ids: string[],
  send: (ids: string[]) => Promise<BatchAnswer>,
  onProgress: (outcome: Outcome) => void,
  goesOn: () => boolean,
  size = BATCH,
): Promise<Outcome> {
  let outcome: Outcome = { changed: [], refused: [], gone: [] };
  for (const batch of chunks(ids, size)) {
    if (!goesOn()) break;
    const { changed, refused } = await send(batch);
    const answered = new Set([...changed, ...refused].map(({ id }) => id));
    outcome = {
      changed: [...outcome.changed, ...changed],
      refused: [...outcome.refused, ...refused],
      gone: [...outcome.gone, ...batch.filter((id) => !answered.has(id))],
    };
    onProgress(outcome);
  }
  return outcome;
}

export function handled(outcome: Outcome): number {
  return outcome.changed.length + outcome.refused.length + outcome.gone.length;
}

/** Read ids page by page, at most so many. */
export async function readIds(
  read: (cursor: string | null) => Promise<{ items: { id: string }[]; cursor: string | null }>,
  most: number,
  goesOn: () => boolean,
): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | null = null;
  do {
    const page: { items: { id: string }[]; cursor: string | null } = await read(cursor);
    ids.push(...page.items.map(({ id }) => id));
    cursor = page.cursor;
  } while (cursor !== null && ids.length < most && goesOn());
  return ids.slice(0, most);
}
