// Light or dark: by the system, unless the user has chosen.

import { createStore } from "../state/store";

export type ThemeChoice = "system" | "light" | "dark";

const KEY = "evenbeat-theme";

const dark = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");

function stored(): ThemeChoice {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

export const themeChoice = createStore<ThemeChoice>(typeof localStorage === "undefined" ? "system" : stored());
export const theme = createStore<"light" | "dark">("light");

function apply(): void {
  const choice = themeChoice.get();
  const shown = choice === "system" ? (dark?.matches ? "dark" : "light") : choice;
  document.documentElement.dataset["theme"] = shown;
  theme.set(shown);
}

export function startTheme(): void {
  apply();
  dark?.addEventListener("change", apply);
  themeChoice.subscribe((choice) => {
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // A browser that stores nothing forgets the choice.
    }
    apply();
  });
}
