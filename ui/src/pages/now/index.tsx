// Now: what needs somebody, what starts in the next hour, what happens at this moment, and who executes it.

import { Page } from "../../parts/page";
import { useMe } from "../../state/session";
import { AttentionList } from "./attention";
import { Feed } from "./feed";
import { LastHour } from "./last_hour";
import { NextHour } from "./next_hour";
import { NodesNow } from "./nodes";

export function NowPage() {
  const me = useMe();
  return (
    <Page title="Now">
      <AttentionList />
      <LastHour />
      <NextHour />
      <div class="grid">
        <Feed />
        {me.tenant === null && <NodesNow />}
      </div>
    </Page>
  );
}
