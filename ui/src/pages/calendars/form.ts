// The form of a calendar: texts, one entry per line.

import type { Calendar, WantedCalendar } from "../../api/schema";

export interface CalendarForm {
  name: string;
  days: string;
  weekly: string;
  without: string;
  tz: string;
  country: string;
  subdivision: string;
  ics: string;
}

export const FIELDS: (keyof CalendarForm)[] = ["name", "days", "weekly", "without", "tz", "country", "subdivision", "ics"];

export const FIRST: CalendarForm = { name: "", days: "", weekly: "", without: "", tz: "", country: "", subdivision: "", ics: "" };

export function formOf(calendar: Calendar): CalendarForm {
  return {
    name: calendar.name,
    days: calendar.days.join("\n"),
    weekly: calendar.weekly.join("\n"),
    without: calendar.without.join("\n"),
    tz: calendar.tz ?? "",
    country: calendar.country ?? "",
    subdivision: calendar.subdivision ?? "",
    ics: "",
  };
}

export function isComplete(form: CalendarForm): boolean {
  return form.name.trim() !== "" && [form.days, form.weekly, form.country, form.ics].some((text) => text.trim() !== "");
}

export function wantedOf(form: CalendarForm): WantedCalendar {
  return {
    days: lines(form.days),
    weekly: lines(form.weekly),
    without: lines(form.without),
    tz: textOrNull(form.tz),
    country: textOrNull(form.country),
    subdivision: textOrNull(form.subdivision),
    ics: form.ics.trim() === "" ? null : form.ics,
  };
}

function lines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

function textOrNull(text: string): string | null {
  return text.trim() === "" ? null : text.trim();
}
