// The palette: Ctrl-K finds pages and schedules by a few letters, and a run by its id. "/" goes to the search of
// the page.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../api/client";
import { Dialog } from "../parts/dialog";
import { href, navigate } from "../state/route";
import { type TenantScope, useMe, useTenantScope } from "../state/session";
import { createStore, useStore } from "../state/store";
import { PAGES } from "./pages";
import { isOpenTo } from "./routes";

const isOpen = createStore(false);

export function openPalette(): void {
  isOpen.set(true);
}

interface Hit {
  label: string;
  kind: string;
  to: string;
}

const WAIT = 120;

export function Palette() {
  const open = useStore(isOpen);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        isOpen.set(!isOpen.get());
      } else if (event.key === "/" && !isTyping(event.target)) {
        const search = document.querySelector<HTMLInputElement>("main input[type=search]");
        if (search === null) isOpen.set(true);
        else search.focus();
        event.preventDefault();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return open ? <OpenPalette /> : null;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

function OpenPalette() {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const found = useSearch(text);
  const me = useMe();
  const hits = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const pages = PAGES.filter((page) => isOpenTo(me, page))
      .filter(({ title }) => title.toLowerCase().includes(wanted))
      .map(({ title, path }) => ({ label: title, kind: "page", to: href([path]) }));
    return [...pages, ...found];
  }, [text, found, me]);
  const go = (hit: Hit | undefined): void => {
    if (hit === undefined) return;
    isOpen.set(false);
    navigate(hit.to);
  };
  const onKey = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setChosen((chosen + step + hits.length) % Math.max(hits.length, 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(hits[chosen]);
    }
  };
  return (
    <Dialog title="Find a page or a schedule" onClose={() => isOpen.set(false)}>
      <input
        type="text"
        list={undefined}
        role="combobox"
        aria-label="Find a page or a schedule"
        aria-expanded="true"
        aria-controls="palette-hits"
        aria-activedescendant={hits[chosen] ? `palette-hit-${chosen}` : undefined}
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKey}
      />
      <ul id="palette-hits" class="hits" role="listbox" aria-label="Found">
        {hits.map((hit, index) => (
          <li
            key={hit.to}
            id={`palette-hit-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => go(hit)}
            onPointerMove={() => setChosen(index)}
          >
            <span>{hit.label}</span>
            <span class="muted">{hit.kind}</span>
          </li>
        ))}
      </ul>
      {hits.length === 0 && <p class="muted">Nothing found.</p>}
    </Dialog>
  );
}

/** Search schedules, and the run of an id, a moment after the last key. */
function useSearch(text: string): Hit[] {
  const scope = useTenantScope();
  const [hits, setHits] = useState<Hit[]>([]);
  const latest = useRef(0);
  useEffect(() => {
    latest.current += 1;
    const mine = latest.current;
    if (text.trim() === "") {
      setHits([]);
      return undefined;
    }
    const timer = setTimeout(() => {
      findSchedules(text.trim(), scope)
        .then((schedules) => {
          if (mine === latest.current) setHits([...runOf(text.trim(), scope), ...schedules]);
        })
        .catch(() => setHits([]));
    }, WAIT);
    return () => clearTimeout(timer);
  }, [text]);
  return hits;
}

async function findSchedules(text: string, scope: TenantScope): Promise<Hit[]> {
  const { items } = await call("GET /schedules", { query: { ...scope, text, limit: 12 } });
  return items.map(({ name, tenant }) => ({ label: name, kind: `schedule of ${tenant}`, to: href(["schedules", tenant, name]) }));
}

/** The id of a tick's run begins with its tenant; others have 32 digits. */
const RUN_ID = /^(?:([\w-]+)\/[\w.:-]+\/\d+\/\d+|[0-9a-f]{32})$/;

/** Offer the page of a run. Whether the run exists is said there. */
function runOf(text: string, scope: TenantScope): Hit[] {
  const match = RUN_ID.exec(text);
  if (match === null) return [];
  const tenant = match[1] ?? scope.tenant;
  return [{ label: text, kind: "run", to: href(tenant === undefined ? ["runs", text] : ["runs", tenant, text]) }];
}
