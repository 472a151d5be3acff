// Retention and repair: which ended runs are kept, rows that nodes can't process, and what is wrong in the store.

import { Page } from "../../parts/page";
import type { PageProps } from "../../shell/routes";
import { useMayInStore } from "../../state/session";
import { QuarantineSection } from "./quarantine";
import { QuarantinedPage } from "./quarantined";
import { RepairSection } from "./repair";
import { RetentionSection } from "./retention";

export function OrderPage({ rest: [tenant, name] }: PageProps) {
  const seesStore = useMayInStore("viewer");
  const mayRepair = useMayInStore("admin");
  if (tenant !== undefined && name !== undefined) return <QuarantinedPage key={`${tenant} ${name}`} tenant={tenant} name={name} />;
  return (
    <Page title="Retention and repair">
      {seesStore && <RetentionSection />}
      <QuarantineSection />
      {mayRepair && <RepairSection />}
    </Page>
  );
}
