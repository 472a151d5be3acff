// Calendars: days and times that schedules skip, or run only in. The list, and one of them with its days.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Calendar, CalendarDay } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { href, navigate, useRoute } from "../../state/route";
import { useMay } from "../../state/session";
import { counted } from "../../time/format";
import { CalendarDialog } from "./calendar_dialog";

type Asked = { act: "set"; calendar: Calendar | null } | { act: "delete"; calendar: Calendar };

export function CalendarsPage({ rest }: PageProps) {
  const tenant = useRoute().query.get("tenant") ?? undefined;
  const name = rest[0];
  return name === undefined ? <CalendarList tenant={tenant} /> : <OneCalendar name={name} tenant={tenant} />;
}

function CalendarList({ tenant }: { tenant: string | undefined }) {
  const data = useData(`calendars ${tenant ?? ""}`, (signal) => call("GET /calendars", { query: { tenant }, signal }));
  const [isNew, setNew] = useState(false);
  const isAdmin = useMay("admin");
  return (
    <Page
      title="Calendars"
      actions={
        isAdmin && (
          <Button kind="primary" onClick={() => setNew(true)}>
            New calendar …
          </Button>
        )
      }
    >
      <Section title="Days and times that schedules skip, or run only in" aside={data.value && counted(data.value.items.length, "calendar")}>
        <Loaded data={data}>{({ items }) => <Table caption="Calendars" columns={columnsOf(tenant)} rows={items} keyOf={(each) => each.name} />}</Loaded>
      </Section>
      {isNew && (
        <CalendarDialog
          calendar={null}
          tenant={tenant}
          onClose={() => setNew(false)}
          onDone={(words) => {
            notify(words);
            setNew(false);
            data.reload();
          }}
        />
      )}
    </Page>
  );
}

function columnsOf(tenant: string | undefined): Column<Calendar>[] {
  return [
    { title: "Calendar", kind: "main", cell: ({ name }) => <a href={href(["calendars", name], { tenant })}>{name}</a> },
    { title: "Contains", kind: "wide", cell: ({ words }) => words },
    { title: "Schedules", kind: "wide", cell: (calendar) => <Users calendar={calendar} /> },
    { title: "Worked out until", cell: ({ covers_until }) => covers_until ?? <span class="muted">–</span> },
    { title: "Changed", cell: ({ updated_at, built_in }) => (built_in ? "built in" : <Time at={updated_at} />) },
  ];
}

function OneCalendar({ name, tenant }: { name: string; tenant: string | undefined }) {
  const data = useData(`calendar ${tenant ?? ""} ${name}`, (signal) => call("GET /calendars/{name}", { path: { name }, query: { tenant }, signal }));
  const days = useData(`calendar days ${tenant ?? ""} ${name}`, (signal) => call("GET /calendars/{name}/days", { path: { name }, query: { tenant, count: 366 }, signal }));
  const [asked, setAsked] = useState<Asked | null>(null);
  const isAdmin = useMay("admin");
  const calendar = data.value;
  return (
    <Page
      title={name}
      actions={
        isAdmin &&
        calendar !== undefined &&
        !calendar.built_in && (
          <>
            <Button onClick={() => setAsked({ act: "set", calendar })}>Change …</Button>
            <Button kind="danger" onClick={() => setAsked({ act: "delete", calendar })}>
              Delete …
            </Button>
          </>
        )
      }
    >
      <Section title="What it contains">
        <Loaded data={data}>{(found) => <About calendar={found} tenant={tenant} />}</Loaded>
      </Section>
      <Section title="Its days of the coming year" aside={days.value && counted(days.value.items.length, "day")}>
        <Loaded data={days}>{({ items }) => <Table caption={`Days of ${name}`} columns={DAYS} rows={items} keyOf={(each) => each.day} />}</Loaded>
      </Section>
      {asked?.act === "set" && (
        <CalendarDialog
          calendar={asked.calendar}
          tenant={tenant}
          onClose={() => setAsked(null)}
          onDone={(words) => {
            notify(words);
            setAsked(null);
            data.reload();
            days.reload();
          }}
        />
      )}
      {asked?.act === "delete" && <DeleteDialog calendar={asked.calendar} tenant={tenant} onClose={() => setAsked(null)} />}
    </Page>
  );
}

const DAYS: Column<CalendarDay>[] = [
  { title: "Day", kind: "main", cell: ({ day }) => day },
  { title: "Weekday", cell: ({ weekday }) => weekday },
  { title: "Times", cell: ({ times }) => (times.length === 0 ? "the whole day" : times.join(", ")) },
];

function About({ calendar, tenant }: { calendar: Calendar; tenant: string | undefined }) {
  return (
    <>
      <p class="whole-text">{calendar.words}</p>
      {calendar.covers_until !== null && <p>Holidays and events are worked out until {calendar.covers_until}. Save it again to renew them.</p>}
      <p>{zoneWords(calendar)}</p>
      {calendar.schedules.length === 0 ? (
        <p class="muted">No schedule uses it.</p>
      ) : (
        <p class="names">
          Used by <Schedules calendar={calendar} />
        </p>
      )}
      {calendar.templates.length > 0 && (
        <p class="names">
          Templates that name it:{" "}
          {calendar.templates.map((each, at) => (
            <span key={each}>
              {at > 0 && ", "}
              <a href={href(["templates"], { tenant })}>{each}</a>
            </span>
          ))}
        </p>
      )}
    </>
  );
}

function zoneWords({ tz, events }: Calendar): string {
  if (tz !== null) return `Its days and times are those of ${tz}.`;
  return `Its days and windows are those of each schedule's zone.${events > 0 ? " Times of events are shown in UTC." : ""}`;
}

function Schedules({ calendar }: { calendar: Calendar }) {
  return (
    <>
      {calendar.schedules.map((each, at) => (
        <span key={each}>
          {at > 0 && ", "}
          <a href={href(["schedules", calendar.tenant, each])}>{each}</a>
        </span>
      ))}
    </>
  );
}

function Users({ calendar }: { calendar: Calendar }) {
  const { schedule_count: count, schedules, templates } = calendar;
  const more = (count ?? 0) - schedules.length;
  return (
    <>
      {count === null && <span class="muted">not counted</span>}
      {count === 0 && templates.length === 0 && <span class="muted">none</span>}
      <Schedules calendar={calendar} />
      {more > 0 && ` and ${more} more`}
      {templates.length > 0 && `${schedules.length > 0 ? "; " : ""}${counted(templates.length, "template")}`}
    </>
  );
}

function DeleteDialog({ calendar, tenant, onClose }: { calendar: Calendar; tenant: string | undefined; onClose: () => void }) {
  const remove = useAction(async () => {
    await call("DELETE /calendars/{name}", { path: { name: calendar.name }, query: { tenant } });
    notify(`Deleted ${calendar.name}.`);
    navigate(href(["calendars"], { tenant }));
  });
  return (
    <ActionDialog title={`Delete ${calendar.name}`} verb="Delete" kind="danger" isBusy={remove.isBusy} error={remove.error} onSubmit={() => void remove.run()} onClose={onClose}>
      <p>{calendar.schedules.length + calendar.templates.length === 0 ? "No schedule and no template uses it." : "Schedules or templates use it: give them another trigger first."}</p>
    </ActionDialog>
  );
}
