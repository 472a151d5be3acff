// The bar at the top: navigation, tenant, zone, theme, the state of the stream, and who is logged in.

import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client";
import { useAction } from "../live/action";
import { useData } from "../live/data";
import { storeIsAway, streamState } from "../live/stream";
import { updatedAt } from "../live/data";
import { Button } from "../parts/button";
import { notify } from "../parts/notice";
import { type ThemeChoice, themeChoice } from "../parts/theme";
import { href, setQuery, useRoute } from "../state/route";
import { session, useMe } from "../state/session";
import { useStore } from "../state/store";
import { useNow } from "../time/clock";
import { spanText, zoneName } from "../time/format";
import { myZone, useZoneChoice } from "../time/zone";
import { openPalette } from "./palette";
import { PAGES } from "./pages";
import { isOpenTo, type PageEntry } from "./routes";

export function TopBar({ current }: { current: string }) {
  const me = useMe();
  const shown = PAGES.filter((page) => isOpenTo(me, page));
  return (
    <header class="bar">
      <a class="brand" href={href(["now"])}>
        <Logo />
        Evenbeat
      </a>
      <nav aria-label="Pages">
        <ul>
          {shown.filter((page) => !page.more).map((page) => (
            <PageLink key={page.path} page={page} current={current} />
          ))}
          <More pages={shown.filter((page) => page.more)} current={current} />
        </ul>
      </nav>
      <div class="bar-tools">
        <StreamSign />
        <button type="button" class="find" aria-label="Find a page or a schedule" onClick={openPalette}>
          <span>Find</span> <kbd>Ctrl K</kbd>
        </button>
        <TenantSwitch />
        <ZoneSwitch />
        <ThemeSwitch />
        <User />
      </div>
    </header>
  );
}

function PageLink({ page: { path, title }, current }: { page: PageEntry; current: string }) {
  return (
    <li>
      <a href={href([path])} aria-current={path === current ? "page" : undefined}>
        {title}
      </a>
    </li>
  );
}

/** The pages that are opened less often, in a list below a button. On a phone they follow the others in the row. */
function More({ pages, current }: { pages: PageEntry[]; current: string }) {
  const [isOpen, setOpen] = useState(false);
  const item = useRef<HTMLLIElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const list = useId();
  // Not after the next frame, as useEffect: a focus that moves on at once closes the list, too.
  useLayoutEffect(() => {
    if (!isOpen) return;
    const close = (event: Event): void => {
      if (!(event.target instanceof Node && item.current?.contains(event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("focusin", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("focusin", close);
    };
  }, [isOpen]);
  const closeByKey = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !isOpen) return;
    setOpen(false);
    button.current?.focus();
  };
  return (
    <li ref={item} class="nav-more" onKeyDown={closeByKey}>
      <button
        ref={button}
        type="button"
        aria-expanded={isOpen}
        aria-controls={list}
        class={pages.some(({ path }) => path === current) ? "current" : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        More
      </button>
      <ul id={list} class={isOpen ? "open" : undefined} onClick={() => setOpen(false)}>
        {pages.map((page) => (
          <PageLink key={page.path} page={page} current={current} />
        ))}
      </ul>
    </li>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true" class="logo">
      <rect width="32" height="32" rx="8" />
      <path d="M7.5 12.5v7M13.2 8.5v15M18.8 12.5v7M24.5 8.5v15" />
    </svg>
  );
}

/** Says whether the page is live, and how old its data is. */
function StreamSign() {
  const state = useStore(streamState);
  const away = useStore(storeIsAway);
  const updated = useStore(updatedAt);
  const now = useNow();
  const age = updated === 0 ? "" : spanText(Math.max(0, Date.now() - updated));
  void now;
  const words = away ? "the store does not answer" : state === "live" ? "live" : state === "connecting" ? "connecting" : state === "paused" ? "paused" : "reconnecting";
  return (
    <span class={`stream ${away ? "reconnecting" : state}`} role="status" aria-live="off" title={age ? `${words}, updated ${age} ago` : words}>
      <span class="dot" aria-hidden="true" />
      {state === "live" && !away && age ? <span class="age">{age} ago</span> : words}
    </span>
  );
}

function TenantSwitch() {
  const me = useMe();
  const { query } = useRoute();
  const tenants = useData("tenants", (signal) => call("GET /tenants", { signal }), { every: 60_000 });
  if (me.tenant !== null) return <span class="tenant">{me.tenant}</span>;
  const names = (tenants.value?.items ?? []).map(({ name }) => name);
  const chosen = query.get("tenant") ?? "";
  if (names.length < 2 && chosen === "") return null;
  if (chosen !== "" && !names.includes(chosen)) names.push(chosen);
  return (
    <select aria-label="Tenant" value={chosen} onChange={(event) => setQuery({ tenant: event.currentTarget.value })}>
      <option value="">all tenants</option>
      {names.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
    </select>
  );
}

function ZoneSwitch() {
  const choice = useZoneChoice();
  return (
    <select aria-label="Time zone" value={choice} onChange={(event) => setQuery({ tz: event.currentTarget.value === "mine" ? null : event.currentTarget.value })}>
      <option value="mine">{`${zoneName(myZone())} (mine)`}</option>
      <option value="schedule">the schedule's</option>
      <option value="utc">UTC</option>
    </select>
  );
}

const THEMES: Record<ThemeChoice, { sign: string; label: string; next: ThemeChoice }> = {
  system: { sign: "◐", label: "colours of the system", next: "light" },
  light: { sign: "☀", label: "light colours", next: "dark" },
  dark: { sign: "☾", label: "dark colours", next: "system" },
};

function ThemeSwitch() {
  const { sign, label, next } = THEMES[useStore(themeChoice)];
  const words = `Now ${label}; change to ${THEMES[next].label}`;
  return (
    <Button kind="quiet" small aria-label={words} title={words} onClick={() => themeChoice.set(next)}>
      {sign}
    </Button>
  );
}

function User() {
  const me = useMe();
  const end = useAction(async () => {
    await call("DELETE /session");
    session.set({ state: "logged out", reason: "You are logged out." });
  });
  const logOut = async (): Promise<void> => {
    if (!(await end.run()) && session.get().state === "logged in") notify("The server does not answer: you are still logged in.");
  };
  return (
    <span class="user">
      {me.has_session && <span title={`role ${me.role}`}>{me.name}</span>}
      {me.has_session && (
        <Button kind="quiet" small onClick={() => void logOut()}>
          Log out
        </Button>
      )}
    </span>
  );
}
