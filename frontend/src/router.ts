/** The address bar is the state: which view, and what it shows. */

import { computed, signal } from "@preact/signals";

export type Route =
  | { view: "now" }
  | { view: "service"; name: string | null }
  | { view: "jobs" }
  | { view: "job"; id: string }
  | { view: "fleet" }
  | { view: "control" }
  | { view: "place"; token: string }
  | { view: "unknown" };

const address = signal(new URL(location.href));

export const route = computed<Route>(() => parsed(address.value.pathname));
export const query = computed(() => address.value.searchParams);

export function parsed(path: string): Route {
  const [, first = "", second = "", ...more] = path.split("/");
  const name = decoded(second);
  if (more.some((part) => part !== "")) return { view: "unknown" };
  switch (first) {
    case "":
      return { view: "now" };
    case "s":
      return { view: "service", name: name === "" ? null : name };
    case "jobs":
      return name === "" ? { view: "jobs" } : { view: "job", id: name };
    case "fleet":
      return { view: "fleet" };
    case "control":
      return { view: "control" };
    case "p":
      return name === "" ? { view: "unknown" } : { view: "place", token: name };
    default:
      return { view: "unknown" };
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function navigate(target: string, { replace = false } = {}): void {
  const next = new URL(target, location.href);
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  const moved = next.pathname !== address.value.pathname;
  address.value = next;
  if (moved) {
    scrollTo(0, 0);
    document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
  }
}

export const serviceLink = (name: string): string => `/s/${encodeURIComponent(name)}`;
export const jobLink = (id: string): string => `/jobs/${encodeURIComponent(id)}`;
export const jobsLink = (text: string): string => `/jobs?q=${encodeURIComponent(text)}`;

/** Ordinary links change the view without loading the page again. */
export function followLinks(): void {
  addEventListener("popstate", () => (address.value = new URL(location.href)));
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download")) return;
    const target = new URL(link.href);
    if (target.origin !== location.origin || parsed(target.pathname).view === "unknown") return;
    event.preventDefault();
    navigate(link.href);
  });
}
