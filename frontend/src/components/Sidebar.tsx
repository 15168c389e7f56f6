import { frame } from "../data/live";
import { route, serviceLink } from "../router";

/** The letter of each view is its key. */
export function Sidebar() {
  const view = route.value.view;
  const first = Object.keys(frame.value?.services ?? {})[0];
  const shown = route.value.view === "service" && route.value.name !== null ? route.value.name : first;
  const links = [
    { name: "Now", href: "/", current: view === "now" },
    { name: "Service", href: shown === undefined ? "/s/" : serviceLink(shown), current: view === "service" },
    { name: "Jobs", href: "/jobs", current: view === "jobs" || view === "job" },
    { name: "Fleet", href: "/fleet", current: view === "fleet" },
    { name: "Control", href: "/control", current: view === "control" },
  ];
  return (
    <nav class="sidebar" aria-label="Views">
      <a class="logo" href="/" aria-label="Fairlane">
        <svg viewBox="0 0 20 24" aria-hidden="true">
          <path d="M10 0h8v12h-8zM2 12h8v12H2z" />
        </svg>
      </a>
      {links.map((link) => (
        <a class="view-link" href={link.href} aria-label={link.name} aria-current={link.current ? "page" : undefined}>
          <b aria-hidden="true">{link.name[0]}</b>
          <span aria-hidden="true">{link.name}</span>
        </a>
      ))}
    </nav>
  );
}
