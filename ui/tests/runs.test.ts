import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { chunks, handled, inBatches, readIds } from "../src/pages/runs/batches";
import { bulkActions, filterOf, filterWords, isSpan } from "../src/pages/runs/filter";
import { type Fate, fateOf, fateWords, isOver } from "../src/pages/runs/fates";
import { newestLine, retryWords } from "../src/pages/runs/group";
import { firstRows, freshText, refreshed, type RowPage, shownText, stableGroups, withFresh, withOlder } from "../src/pages/runs/merge";
import { shortId } from "../src/pages/runs/names";

interface R {
  tenant: string;
  id: string;
  created_at: string;
  state: string;
}

/** A run that was created so many minutes after midnight. */
function run(minute: number, state = "queued"): R {
  return { tenant: "default", id: `r${minute}`, created_at: new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString(), state };
}

function page(minutes: number[], cursor: string | null = null, state = "queued"): RowPage<R> {
  return { items: minutes.map((minute) => run(minute, state)), cursor };
}

const ids = (rows: R[]): string[] => rows.map(({ id }) => id);

describe("the live list", () => {
  test("updates rows in place and holds new ones back", () => {
    const list = refreshed(firstRows(page([3, 2, 1])), { items: [run(5), run(4), run(3, "running"), run(2, "failed"), run(1)], cursor: null });
    assert.deepEqual(
      list.rows.map(({ id, state }) => [id, state]),
      [["r3", "running"], ["r2", "failed"], ["r1", "queued"]],
    );
    assert.deepEqual(ids(list.fresh), ["r5", "r4"]);
    assert.equal(freshText(list), "2 new");
    assert.deepEqual(ids(withFresh(list).rows), ["r5", "r4", "r3", "r2", "r1"]);
    assert.deepEqual(withFresh(list).fresh, []);
  });

  test("keeps the place of a row that no longer matches, until new ones are asked for", () => {
    const list = refreshed(firstRows(page([3, 2, 1])), page([4, 3, 1]), [run(2, "succeeded")]);
    assert.deepEqual(
      list.rows.map(({ id, state }) => [id, state]),
      [["r3", "queued"], ["r2", "succeeded"], ["r1", "queued"]],
    );
    assert.deepEqual(ids(withFresh(list).rows), ["r4", "r3", "r1"]);
  });

  test("does not count runs of the next page as new", () => {
    // r2 left the filter, so that r0 moved up into the newest page.
    const list = refreshed(firstRows(page([3, 2, 1], "c1")), page([3, 1, 0], "c0"));
    assert.deepEqual(list.fresh, []);
    assert.deepEqual(ids(list.rows), ["r3", "r2", "r1"]);
  });

  test("counts an older run that matches only now", () => {
    const list = refreshed(firstRows(page([5, 1])), page([5, 3, 1]));
    assert.deepEqual(ids(list.fresh), ["r3"]);
    assert.deepEqual(ids(withFresh(list).rows), ["r5", "r3", "r1"]);
  });

  test("keeps older pages when new runs are shown", () => {
    const grown = withOlder(firstRows(page([6, 5], "c5")), page([4, 3], "c3"));
    const list = withFresh(refreshed(grown, page([7, 6], "c6")));
    assert.deepEqual(ids(list.rows), ["r7", "r6", "r5", "r4", "r3"]);
    assert.equal(list.cursor, "c3");
  });

  test("puts runs of one millisecond in the order of their ids, as the server does", () => {
    const twin = (id: string) => ({ ...run(1), id });
    const newest = (...shown: string[]) => ({ items: shown.map(twin), cursor: "c" });
    const list = refreshed(withOlder(firstRows(newest("a", "b")), newest("c", "d")), newest("a", "b"));
    assert.deepEqual(list.fresh, []);
    assert.deepEqual(ids(withFresh(list).rows), ["a", "b", "c", "d"]);
  });

  test("starts again across a gap", () => {
    const list = refreshed(firstRows(page([2, 1], "c1")), page([9, 8], "c8"));
    assert.equal(list.hasGap, true);
    assert.equal(freshText(list), "2 or more new");
    assert.deepEqual(ids(withFresh(list).rows), ["r9", "r8"]);
    assert.equal(withFresh(list).cursor, "c8");
  });

  test("fills an empty list at once", () => {
    const list = refreshed(firstRows(page([])), page([2, 1]));
    assert.deepEqual(ids(list.rows), ["r2", "r1"]);
    assert.deepEqual(list.fresh, []);
  });

  test("tells runs of the same id apart by tenant", () => {
    const other = { ...run(1, "failed"), tenant: "acme" };
    const list = refreshed(firstRows(page([1])), { items: [other, run(1)], cursor: null });
    assert.equal(list.rows[0]?.state, "queued");
    assert.deepEqual(list.fresh, [other]);
  });

  test("shows no row twice when an older page overlaps", () => {
    assert.deepEqual(ids(withOlder(firstRows(page([3, 2], "c")), page([2, 1])).rows), ["r3", "r2", "r1"]);
  });
});

test("groups keep their order, gone ones stay with a count of 0, new ones are apart", () => {
  const group = (id: string, count: number) => ({ id, count });
  const { groups, fresh } = stableGroups([group("a", 5), group("b", 3)], [group("c", 9), group("b", 7)]);
  assert.deepEqual(groups, [group("a", 0), group("b", 7)]);
  assert.deepEqual(fresh, [group("c", 9)]);
  assert.deepEqual(stableGroups([], [group("c", 9)]).groups, [group("c", 9)]);
});

describe("batches", () => {
  const yes = (): boolean => true;
  const answer = (some: string[]) => ({ changed: some.filter((id) => id !== "b").map((id) => ({ tenant: "t", id })), refused: [] });

  test("send all ids, and report those that were not answered", async () => {
    const sent: string[][] = [];
    const seen: number[] = [];
    const send = async (some: string[]) => {
      sent.push(some);
      return answer(some);
    };
    const outcome = await inBatches(["a", "b", "c"], send, (made) => seen.push(handled(made)), yes, 2);
    assert.deepEqual(sent, [["a", "b"], ["c"]]);
    assert.deepEqual(outcome.gone, ["b"]);
    assert.deepEqual(outcome.changed.map(({ id }) => id), ["a", "c"]);
    assert.deepEqual(seen, [2, 3]);
  });

  test("stop between two batches", async () => {
    let goesOn = true;
    const stop = (): void => void (goesOn = false);
    const outcome = await inBatches(["a", "b", "c"], async (some) => answer(some), stop, () => goesOn, 1);
    assert.equal(handled(outcome), 1);
  });

  test("read ids page by page, up to a bound", async () => {
    const pages = [["a", "b"], ["c", "d"], ["e"]];
    const read = async (cursor: string | null) => {
      const at = Number(cursor ?? 0);
      return { items: (pages[at] ?? []).map((id) => ({ id })), cursor: at < 2 ? String(at + 1) : null };
    };
    assert.deepEqual(await readIds(read, 100, yes), ["a", "b", "c", "d", "e"]);
    assert.deepEqual(await readIds(read, 3, yes), ["a", "b", "c"]);
  });

  test("chunks", () => assert.deepEqual(chunks([1, 2, 3], 2), [[1, 2], [3]]));
});

describe("the filter", () => {
  test("is read from the address, without unknown states", () => {
    assert.deepEqual(filterOf(new URLSearchParams("state=failed&task=mail&since=2h&x=1")), { state: "failed", task: "mail", since: "2h" });
    assert.deepEqual(filterOf(new URLSearchParams("state=broken&task=")), {});
  });

  test("in words", () => {
    assert.equal(filterWords({ state: "failed", schedule: "mail", since: "2h" }), "failed runs of schedule mail, the last 2h");
    assert.equal(filterWords({}, "queued"), "queued runs");
  });

  test("tells durations from dates", () => {
    assert.equal(isSpan("2h"), true);
    assert.equal(isSpan("2026-11-17T09:00:00Z"), false);
  });

  test("offers what can be done", () => {
    assert.deepEqual(bulkActions("succeeded"), []);
    assert.deepEqual(bulkActions("failed"), ["retry"]);
    assert.deepEqual(bulkActions("running"), ["cancel"]);
    assert.deepEqual(bulkActions(undefined), ["retry", "cancel"]);
  });
});

test("short ids end alike and keep whole letters", () => {
  assert.equal(shortId("short"), "short");
  assert.equal(shortId("0198c2d7a1b24f2c91ab07de11223344"), "…b07de11223344");
  assert.equal(shortId("🙂".repeat(20)), `…${"🙂".repeat(13)}`);
});

test("the list says whether it shows all runs", () => {
  assert.equal(shownText(50, true), "The newest 50 runs");
  assert.equal(shownText(12, false), "All 12 runs, the newest first");
  assert.equal(shownText(1, false), "1 run");
});

describe("a group of failures", () => {
  const group = { count: 3, error: "KeyError: '…'", whole_error: "KeyError: 'name'\n\n  File \"a.py\", line 1, in f" };

  test("shows the error of the newest run, where its own words leave out a part", () => {
    assert.equal(newestLine(group), "KeyError: 'name'");
    assert.equal(newestLine({ error: "ValueError: no", whole_error: "ValueError: no\nmore" }), null);
    assert.equal(newestLine({ error: "ValueError: no", whole_error: null }), null);
  });

  test("is named by an error that a run has", () => {
    assert.equal(retryWords(group), "3 runs that failed as the newest did: KeyError: 'name'");
    assert.equal(retryWords({ ...group, count: 1 }), "1 run that failed with KeyError: 'name'");
    assert.equal(retryWords({ ...group, error: "KeyError: 'name'" }), "3 runs that failed with KeyError: 'name'");
  });
});

describe("runs that were retried", () => {
  const since = Date.UTC(2026, 0, 1, 12);
  const attempt = (number: number) => ({
    number, worker: "w", started_at: null, ended_at: null, outcome: "failed" as const, error: null, refused_at: null,
  });
  const ended = { state: "failed" as const, attempt: 3, attempts: [attempt(1), attempt(3)], finished_at: "2026-01-01T12:00:05Z" };

  test("have ended only if they ended after the retry", () => {
    assert.equal(fateOf(ended, since), "failed");
    assert.equal(fateOf({ ...ended, state: "succeeded" }, since), "succeeded");
    assert.equal(fateOf({ ...ended, finished_at: "2026-01-01T11:00:00Z" }, since), "replaced");
    // Without a retry by hand the run stayed as it is, however new it is.
    assert.equal(fateOf({ ...ended, attempt: 1, attempts: [attempt(1)] }, since), "replaced");
    assert.equal(fateOf({ ...ended, state: "queued", finished_at: null }, since), "queued");
  });

  test("are counted by what became of them", () => {
    const fates: Fate[] = ["succeeded", "failed", "succeeded"];
    assert.equal(fateWords(fates, 3), "3 retried: 2 succeeded, 1 failed again");
    assert.equal(fateWords(["running", "queued"], 4), "4 retried: 1 running, 3 wait");
    assert.equal(fateWords([], 1), "1 retried: 1 waits");
    assert.deepEqual(["queued", "running", "failed", undefined].map((each) => isOver(each as Fate | undefined)), [false, false, true, false]);
  });
});
