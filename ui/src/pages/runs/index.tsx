import type { PageProps } from "../../shell/routes";
import { RunPage } from "../run/index";
import { RunSearch } from "../run/search";
import { FailuresPage } from "./failures";
import { RunListPage } from "./list";

export function RunsPage({ rest }: PageProps) {
  const [tenant, id] = rest;
  if (tenant === undefined) return <RunListPage />;
  if (rest.length === 2 && id !== undefined) return <RunPage tenant={tenant} id={id} />;
  return tenant === "failures" ? <FailuresPage /> : <RunSearch parts={rest} />;
}
