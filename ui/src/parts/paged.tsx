// The buttons of a list that is read page by page.

import type { ComponentChildren } from "preact";
import type { PagedList } from "../live/paging";
import { Button } from "./button";
import { Loaded } from "./load";
import { ProblemBox } from "./problem";

export interface PagedProps<T> {
  list: PagedList<T>;
  /** The words on the button that reads the next page. */
  more: string;
  children: (rows: T[]) => ComponentChildren;
}

/** How many rows are new, as a button that shows them; without any, other words. It is beside the title: no row moves. */
export function NewRows<T>({ list, children }: { list: PagedList<T>; children: ComponentChildren }) {
  return (
    <span role="status">
      {list.added === 0 ? (
        children
      ) : (
        <Button small kind="primary" onClick={list.showNew}>
          {list.added} new
        </Button>
      )}
    </span>
  );
}

/** Show a list, and below it a button for older rows. */
export function Paged<T>({ list, more, children }: PagedProps<T>) {
  return (
    <Loaded data={list.data}>
      {() => (
        <>
          {list.rows !== null && children(list.rows)}
          {list.moreError && <ProblemBox problem={list.moreError} />}
          {list.hasMore && (
            <p class="older">
              <Button isBusy={list.isLoadingMore} onClick={list.loadMore}>
                {list.isLoadingMore ? "Loading …" : more}
              </Button>
            </p>
          )}
        </>
      )}
    </Loaded>
  );
}
