import type { ComponentChildren } from "preact";
import { signOut } from "../data/api";
import { connection, frame, paused, selecting, togglePause } from "../data/live";
import { session } from "../data/session";
import { count } from "../format";
import { nextTheme, theme } from "../theme";
import { SearchBox } from "./SearchBox";

interface Props {
  title: ComponentChildren;
  children?: ComponentChildren;
}

export function Header({ title, children }: Props) {
  return (
    <header class="page-head">
      <h1>{title}</h1>
      <div class="pills">
        {children}
        <Connection />
        <Simulated />
      </div>
      <SearchBox />
      <div class="head-tools">
        <button class="quiet icon" onClick={nextTheme} aria-label={`theme: ${theme.value}`} title="theme (t)">
          {{ system: "◐", dark: "●", light: "○" }[theme.value]}
        </button>
        {session.value?.signed_in && !session.value.dev_mode && (
          <button class="quiet" onClick={() => void signOut()}>
            Sign out
          </button>
        )}
      </div>
    </header>
  );
}

function Connection() {
  const state = paused.value ? "paused" : selecting.value ? "still while you select" : connection.value;
  const text = { connecting: "connecting", live: "live", offline: "offline, trying again" }[state as string] ?? state;
  return (
    <button class={`pill ${state === "offline" ? "wrong" : ""}`} onClick={togglePause} title="pause (p)" aria-label={`${text}; pause or go on`}>
      <i class={`pulse ${state}`} /> <span>{text}</span>
    </button>
  );
}

function Simulated() {
  const simulated = frame.value?.simulated;
  return simulated ? <span class="pill">simulated time × {count(simulated.speed)}</span> : null;
}
