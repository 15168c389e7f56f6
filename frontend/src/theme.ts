/** Dark or light: the user's choice, else the system's. */

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "dark" | "light";
const ORDER: Theme[] = ["system", "dark", "light"];
const KEPT_AS = "fairlane-theme";

export const theme = signal<Theme>(stored());
/** Counts changes of the colours: canvases draw again. */
export const colours = signal(0);

export function applyTheme(): void {
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
    colours.value = colours.peek() + 1;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (colours.value += 1));
}

export function nextTheme(): void {
  theme.value = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length] ?? "system";
  try {
    localStorage.setItem(KEPT_AS, theme.value);
  } catch {
    // Storage is switched off: the choice lasts until the page is closed.
  }
}

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEPT_AS) as Theme | null;
    return found !== null && ORDER.includes(found) ? found : "system";
  } catch {
    return "system";
  }
}

/** The present value of a colour of the style sheet, for a canvas. */
export function colour(name: string): string {
  probe ??= document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

let probe: HTMLElement | undefined;
