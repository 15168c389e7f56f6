import { useEffect, useState } from "preact/hooks";
import { Announcements } from "./components/Announcements";
import { Header } from "./components/Header";
import { Help } from "./components/Help";
import { Notice } from "./components/Notice";
import { Palette } from "./components/Palette";
import { Sidebar } from "./components/Sidebar";
import { loadSession } from "./data/api";
import { frame, start, togglePause } from "./data/live";
import { session } from "./data/session";
import { speed } from "./format";
import { useGlobalKeys } from "./keys";
import { navigate, route, serviceLink } from "./router";
import { nextTheme } from "./theme";
import { ControlView } from "./views/ControlView";
import { FleetView } from "./views/FleetView";
import { JobView } from "./views/JobView";
import { JobsView } from "./views/JobsView";
import { NowView } from "./views/NowView";
import { PlaceView } from "./views/PlaceView";
import { ServiceView } from "./views/ServiceView";
import { SignInView } from "./views/SignInView";

/** A signed link opens its page without a key; everything else needs a session. */
export function App() {
  if (route.value.view === "place") return <PlaceView token={route.value.token} />;
  return <Session />;
}

function Session() {
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    loadSession().catch(() => setFailed(true));
  }, []);
  const known = session.value;
  if (failed) return <p class="notice">The server does not answer. Reload the page to try again.</p>;
  if (known === null) return null;
  return known.signed_in || known.dev_mode ? <Dashboard /> : <SignInView />;
}

function Dashboard() {
  const [open, setOpen] = useState<"help" | "palette" | null>(null);
  useEffect(start, []);
  speed.value = frame.value?.simulated?.speed ?? 1;
  const service = () => Object.keys(frame.value?.services ?? {})[0];
  const views: Record<string, () => void> = {
    n: () => navigate("/"),
    s: () => navigate(service() === undefined ? "/s/" : serviceLink(service() as string)),
    j: () => navigate("/jobs"),
    f: () => navigate("/fleet"),
    c: () => navigate("/control"),
  };
  const capitals = Object.fromEntries(Object.entries(views).map(([key, run]) => [key.toUpperCase(), run]));
  useGlobalKeys({
    ...views,
    ...capitals,
    p: togglePause,
    t: nextTheme,
    "?": () => setOpen("help"),
    "Ctrl-K": () => setOpen("palette"),
    Escape: back,
  });
  return (
    <>
      <a class="skip-link" href="#main">
        Skip to the content
      </a>
      <Sidebar />
      <main id="main" tabIndex={-1}>
        <View />
      </main>
      {open === "help" && <Help onClose={() => setOpen(null)} />}
      {open === "palette" && <Palette onClose={() => setOpen(null)} />}
      <Announcements />
    </>
  );
}

function View() {
  const shown = route.value;
  switch (shown.view) {
    case "now":
      return <NowView />;
    case "service":
      return <ServiceView name={shown.name} />;
    case "jobs":
      return <JobsView />;
    case "job":
      return <JobView key={shown.id} id={shown.id} />;
    case "fleet":
      return <FleetView />;
    case "control":
      return <ControlView />;
    default:
      return (
        <>
          <Header title="Nothing here" />
          <Notice>
            There is no such page. <a href="/">Now</a> shows what is going on.
          </Notice>
        </>
      );
  }
}

/** Leaves a field first, then a detail page, then goes to Now. */
function back(): void {
  const focused = document.activeElement;
  if (focused instanceof HTMLElement && ["INPUT", "TEXTAREA", "SELECT"].includes(focused.tagName)) focused.blur();
  else if (route.value.view === "job") history.length > 1 ? history.back() : navigate("/jobs");
  else if (route.value.view !== "now") navigate("/");
}
