// The options of a template, as a list.

import type { Template } from "../../api/schema";
import { LABELS } from "../schedules/form";
import { rowsOf } from "../schedules/options";

export function TemplateOptions({ template }: { template: Template }) {
  return (
    <ul class="plain-list" aria-label={`Options of ${template.name}`}>
      {rowsOf(template.options).map(({ option, text }) => (
        <li key={option}>
          {LABELS[option]}: {text === "" ? <span class="muted">none</span> : <code>{text}</code>}
          {option === "trigger" && <span class="muted"> {template.words}</span>}
        </li>
      ))}
    </ul>
  );
}
