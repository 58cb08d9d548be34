// Light, dark, or as the system says.

import {createStore, useStore} from "./store.js";

const CHOICES = ["auto", "light", "dark"];
const choice = createStore(document.documentElement.dataset.theme ?? "auto");
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

/** The choice ("auto", "light" or "dark"), and what takes the next one. */
export function useTheme() {
  const current = useStore(choice);
  const next = CHOICES[(CHOICES.indexOf(current) + 1) % CHOICES.length];
  return [current, () => setTheme(next)];
}

/** @param {"auto"|"light"|"dark"} theme */
export function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("logqueue.theme");
    else localStorage.setItem("logqueue.theme", theme);
  } catch {
    // Kept until the page is closed.
  }
  choice.set(theme);
}

/** Whether the page is dark now. Draws again when that changes. */
export function useIsDark() {
  const current = useStore(choice);
  return current === "dark" || (current === "auto" && systemIsDark.matches);
}

/** A colour of the style sheet, such as `--accent`: for drawings that take no style sheet. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

systemIsDark.addEventListener("change", () => choice.set((value) => value));
