// Schedules: the list, one schedule, and the forms that create and edit one. Only the code of what is shown is loaded.

import { Empty } from "../../parts/empty";
import { Page } from "../../parts/page";
import { LazyPage } from "../../shell/lazy";
import type { PageEntry, PageProps } from "../../shell/routes";
import { useMay } from "../../state/session";
import { SchedulesList } from "./list";

const ONE: PageEntry = {
  path: "schedules: one",
  title: "Schedule",
  load: async () => {
    const { SchedulePage } = await import("../schedule/index");
    return ({ rest: [tenant = "", name = ""] }) => <SchedulePage tenant={tenant} name={name} />;
  },
};

const NEW: PageEntry = { path: "schedules: new", title: "New schedule", load: async () => (await import("./create")).CreateSchedule };

const EDIT: PageEntry = {
  path: "schedules: edit",
  title: "Edit",
  load: async () => {
    const { EditSchedule } = await import("./edit");
    return ({ rest: [tenant = "", name = ""] }) => <EditSchedule tenant={tenant} name={name} />;
  },
};

export function SchedulesPage({ rest }: PageProps) {
  const isAdmin = useMay("admin");
  const [tenant, name, what] = rest;
  if (tenant === undefined) return <SchedulesList />;
  if (name === undefined && tenant === "new") return isAdmin ? <LazyPage entry={NEW} rest={rest} /> : <OnlyAdmins />;
  if (name !== undefined && what === "edit") return isAdmin ? <LazyPage entry={EDIT} rest={rest} /> : <OnlyAdmins />;
  if (name !== undefined && what === undefined) return <LazyPage entry={ONE} rest={rest} />;
  return (
    <Page title="Not found">
      <Empty>There is no page at this address. The list has all schedules.</Empty>
    </Page>
  );
}

function OnlyAdmins() {
  return (
    <Page title="Schedules">
      <p>Only the role admin may create and edit schedules.</p>
    </Page>
  );
}
