// What a page of the navigation is.

import type { ComponentType } from "preact";
import type { Me } from "../api/schema";
import { may } from "../state/session";

export interface PageProps {
  /** The parts of the address after the page's own: ["default", "mail"] of "#/schedules/default/mail". */
  rest: string[];
}

export interface PageEntry {
  /** The first part of the address. */
  path: string;
  title: string;
  /** Loads the code of the page: each page is a file of its own. */
  load: () => Promise<ComponentType<PageProps>>;
  /** Only for tokens of all tenants. */
  wholeStore?: boolean;
  /** Only for this role. */
  role?: "admin";
  /** Listed under "More", so that the navigation takes one row on a screen of 1280 pixels. */
  more?: boolean;
}

/** Return whether a user may open a page. */
export function isOpenTo(me: Me, page: PageEntry): boolean {
  return !(page.wholeStore && me.tenant !== null) && (page.role === undefined || may(me, page.role));
}
