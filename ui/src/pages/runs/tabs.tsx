import { href, useRoute } from "../../state/route";

/** Links between the list of runs and the failures by error. */
export function RunTabs({ current }: { current: "runs" | "failures" }) {
  const { query } = useRoute();
  const kept = { schedule: query.get("schedule"), task: query.get("task"), since: query.get("since") };
  return (
    <nav class="tabs" aria-label="Views of runs">
      <a href={href(["runs"], kept)} aria-current={current === "runs" ? "page" : undefined}>
        All runs
      </a>
      <a href={href(["runs", "failures"], kept)} aria-current={current === "failures" ? "page" : undefined}>
        Failures by error
      </a>
    </nav>
  );
}
