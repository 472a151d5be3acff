// Tables. On narrow screens each row becomes a card, with the column's title before each value.

import type { ComponentChildren } from "preact";

export interface Column<T> {
  title: string;
  /** Shown in the place of the title: a checkbox for all rows. */
  head?: ComponentChildren;
  cell: (row: T) => ComponentChildren;
  /** `number` aligns to the right; `main` is the row's heading; `wide` may wrap. */
  kind?: "number" | "main" | "wide" | "plain";
  /** The value of `sort` in the URL; the title becomes a button. */
  sort?: string;
}

export interface TableProps<T> {
  /** What the table lists, for screen readers. */
  caption: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  sort?: string;
  onSort?: (sort: string) => void;
  /** Shown in the place of rows. */
  empty?: ComponentChildren;
}

export function Table<T>({ caption, columns, rows, keyOf, sort, onSort, empty }: TableProps<T>) {
  if (rows.length === 0 && empty !== undefined) return <>{empty}</>;
  return (
    <div class="table-frame" role="group" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="off-screen">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.title} column={column as Column<unknown>} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) =>
                column.kind === "main" ? (
                  <th key={column.title} scope="row" data-title={column.title}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td key={column.title} class={column.kind ?? "plain"} data-title={column.title}>
                    {column.cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface HeadProps {
  column: Column<unknown>;
  sort: string | undefined;
  onSort: ((sort: string) => void) | undefined;
}

function Head({ column, sort, onSort }: HeadProps) {
  const by = column.sort;
  if (by === undefined || onSort === undefined) {
    return (
      <th scope="col" class={column.kind ?? "plain"}>
        {column.head ?? column.title}
      </th>
    );
  }
  const direction = sort === by ? "ascending" : sort === `-${by}` ? "descending" : "none";
  return (
    <th scope="col" class={column.kind ?? "plain"} aria-sort={direction}>
      <button type="button" class="sort" onClick={() => onSort(direction === "ascending" ? `-${by}` : by)}>
        {column.title}
        <span aria-hidden="true">{direction === "ascending" ? " ▲" : direction === "descending" ? " ▼" : ""}</span>
      </button>
    </th>
  );
}
