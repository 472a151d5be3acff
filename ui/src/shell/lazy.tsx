// A page whose code is loaded when it is first opened.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Button } from "../parts/button";
import { Loading } from "../parts/load";
import type { PageEntry, PageProps } from "./routes";

const loaded = new Map<string, ComponentType<PageProps>>();

export function LazyPage({ entry, rest }: { entry: PageEntry; rest: string[] }) {
  const [, render] = useState(0);
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    if (loaded.has(entry.path)) return;
    setFailed(false);
    entry
      .load()
      .then((page) => {
        loaded.set(entry.path, page);
        render((count) => count + 1);
      })
      .catch(() => setFailed(true));
  }, [entry]);
  const Shown = loaded.get(entry.path);
  if (Shown !== undefined) return <Shown rest={rest} />;
  return hasFailed ? <Outdated /> : <Loading />;
}

/** The files of the page have other names after an upgrade of the server. */
function Outdated() {
  return (
    <div class="problem" role="alert">
      <p>This page could not be loaded. The server may be restarting, or may have been upgraded.</p>
      <Button small onClick={() => location.reload()}>
        Load the dashboard again
      </Button>
    </div>
  );
}
