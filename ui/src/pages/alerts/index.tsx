// Alerts: what is wrong, who is told about it, and what became of the messages. The tab is in the address.

import type { ComponentType } from "preact";
import { Page } from "../../parts/page";
import type { PageProps } from "../../shell/routes";
import { href, useRoute } from "../../state/route";
import { ChannelsTab } from "./channels";
import { DeliveriesTab } from "./deliveries";
import { OpenTab, PastTab } from "./incidents";
import { RulesTab } from "./rules";
import { WindowsTab } from "./windows";

const TABS: { tab: string; title: string; shown: ComponentType }[] = [
  { tab: "open", title: "Open incidents", shown: OpenTab },
  { tab: "rules", title: "Rules", shown: RulesTab },
  { tab: "channels", title: "Channels", shown: ChannelsTab },
  { tab: "windows", title: "Maintenance windows", shown: WindowsTab },
  { tab: "log", title: "Delivery log", shown: DeliveriesTab },
  { tab: "past", title: "Past incidents", shown: PastTab },
];

export function AlertsPage(_: PageProps) {
  const asked = useRoute().query.get("tab") ?? "open";
  const current = TABS.find(({ tab }) => tab === asked) ?? TABS[0]!;
  const Shown = current.shown;
  return (
    <Page title="Alerts">
      <nav class="tabs" aria-label="Views of alerts">
        {TABS.map(({ tab, title }) => (
          <a key={tab} href={href(["alerts"], { tab: tab === "open" ? null : tab })} aria-current={tab === current.tab ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <Shown />
    </Page>
  );
}
