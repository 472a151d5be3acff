// The frame of all pages: the session, the navigation, the choice of tenant and zone, the state of the stream.

import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call, Problem } from "../api/client";
import { SharedStream } from "../live/stream";
import { Notices } from "../parts/notice";
import { Loading } from "../parts/load";
import { Page } from "../parts/page";
import { ProblemBox } from "../parts/problem";
import { useRoute } from "../state/route";
import { session, useMe, useSession, useTenantScope } from "../state/session";
import { createStore, useStore } from "../state/store";
import { TopBar } from "./bar";
import { LogIn } from "./log_in";
import { PAGES } from "./pages";
import { LazyPage } from "./lazy";
import { Palette } from "./palette";
import { isOpenTo, type PageEntry } from "./routes";

const startProblem = createStore<Problem | null>(null);

const RETRY = 3_000;

async function start(): Promise<void> {
  try {
    session.set({ state: "logged in", me: await call("GET /me") });
    startProblem.set(null);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) return;
    startProblem.set(error);
    setTimeout(() => void start(), RETRY);
  }
}

export function App() {
  const found = useSession();
  const problem = useStore(startProblem);
  useEffect(() => void start(), []);
  if (found.state === "logged out") return <LogIn reason={found.reason} />;
  if (found.state === "unknown") {
    return <main class="lone">{problem === null ? <Loading /> : <ProblemBox problem={problem} />}</main>;
  }
  return <LoggedIn />;
}

function LoggedIn() {
  const me = useMe();
  const scope = useTenantScope();
  const route = useRoute();
  const stream = new URLSearchParams(Object.entries(scope).map(([name, value]) => [name, String(value)])).toString();
  useEffect(() => {
    const made = new SharedStream(stream);
    return () => made.close();
  }, [stream]);
  useFocus(route.path.join("/"));
  const [first = "now", ...rest] = route.path;
  const entry = PAGES.find(({ path }) => path === first);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <TopBar current={first} />
      <main id="main" tabIndex={-1}>
        <Boundary key={route.path.join("/")}>
          {entry === undefined ? (
            <Nowhere path={first} />
          ) : isOpenTo(me, entry) ? (
            <LazyPage key={entry.path} entry={entry} rest={rest} />
          ) : (
            <Closed entry={entry} />
          )}
        </Boundary>
      </main>
      <Palette />
      <Notices />
    </>
  );
}

/** Focus the content of a new page if the link that led to it is gone: readers continue there. */
function useFocus(path: string): void {
  const before = useRef(path);
  useEffect(() => {
    if (before.current === path) return;
    before.current = path;
    if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
  }, [path]);
}

function skip(event: Event): void {
  // The address after "#" is the route.
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Nowhere({ path }: { path: string }) {
  return (
    <Page title="Not found">
      <p class="empty">There is no page “{path}”. The navigation above lists all of them.</p>
    </Page>
  );
}

/** A page that the user's token may not read. */
function Closed({ entry }: { entry: PageEntry }) {
  return (
    <div class="empty">
      <h1>{entry.title}</h1>
      <p>This page needs a token {entry.role === undefined ? "" : `with the role ${entry.role} `}for all tenants. Log in with such a token to see it.</p>
    </div>
  );
}

/** Shows that a page is broken, and leaves the navigation usable. */
class Boundary extends Component<{ children: ComponentChildren }, { failure: string | null }> {
  override state = { failure: null as string | null };

  static override getDerivedStateFromError(error: unknown): { failure: string } {
    return { failure: String(error) };
  }

  override componentDidCatch(error: unknown): void {
    console.error(error);
  }

  override render() {
    if (this.state.failure === null) return this.props.children;
    return (
      <div class="problem" role="alert">
        <p>This page failed: {this.state.failure}</p>
        <p>Load it again. If it fails again, it is a defect of the dashboard: please report it.</p>
      </div>
    );
  }
}
