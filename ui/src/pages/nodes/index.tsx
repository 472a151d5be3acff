// Nodes: who fires and executes, which tasks nobody has, what nodes can't process, and the check of the store.

import { Page } from "../../parts/page";
import type { PageProps } from "../../shell/routes";
import { useMay } from "../../state/session";
import { QuarantineSection } from "../order/quarantine";
import { Doctor } from "./doctor";
import { LiveNodes } from "./live_nodes";
import { MissingTasks } from "./missing_tasks";

export function NodesPage(_: PageProps) {
  const mayCheck = useMay("admin");
  return (
    <Page title="Nodes">
      <LiveNodes />
      <MissingTasks />
      <QuarantineSection />
      {mayCheck && <Doctor />}
    </Page>
  );
}
