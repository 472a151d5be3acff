// Timeline: what ran and what will run, of all schedules; and the load by the minute over the next seven days.

import { Choice, chosen } from "../../parts/choice";
import { Page } from "../../parts/page";
import { setQuery, useRoute } from "../../state/route";
import { Herd } from "./herd";
import { Lanes } from "./lanes";

type View = "lanes" | "herd";

const VIEWS: [View, string][] = [
  ["lanes", "Schedules over time"],
  ["herd", "Load by the minute, 7 days"],
];

export function TimelinePage() {
  const view = chosen(useRoute().query, "view", VIEWS, "lanes");
  return (
    <Page
      title="Timeline"
      actions={<Choice label="View" value={view} options={VIEWS} onChoose={(next) => setQuery({ view: next === "lanes" ? null : next })} />}
    >
      {view === "herd" ? <Herd /> : <Lanes />}
    </Page>
  );
}
