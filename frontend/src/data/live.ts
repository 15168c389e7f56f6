/** The socket of the dashboard: the latest frame, and details by topic. It reconnects by itself,
 *  rests while the tab is hidden, and holds the picture still while the user reads or selects. */

import { batch, computed, signal } from "@preact/signals";
import { applied } from "./delta";
import type { Frame, Message } from "./frame";
import { session, signedOut } from "./session";

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 8_000;
const KEY_NOT_VALID = [4401, 4403];
const SILENT_MS = 6_000;

export const frame = signal<Frame | null>(null);
export const connection = signal<"connecting" | "live" | "offline">("connecting");
export const paused = signal(false);
export const selecting = signal(false);
export const topics = signal<Record<string, unknown>>({});

/** The server's clock, at the last frame that is shown. */
export const now = computed(() => frame.value?.at ?? 0);

let latest: Frame | null = null;
let number = 0;
let socket: WebSocket | null = null;
let retryMs = RETRY_FIRST_MS;
let retryTimer: ReturnType<typeof setTimeout> | undefined;
let silenceTimer: ReturnType<typeof setTimeout> | undefined;
const watched = new Map<string, number>();

export function start(): void {
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : connect()));
  document.addEventListener("selectionchange", () => {
    selecting.value = !(document.getSelection()?.isCollapsed ?? true);
    show();
  });
  addEventListener("online", () => connect());
  addEventListener("offline", () => drop());
  if (!document.hidden) connect();
}

export function togglePause(): void {
  paused.value = !paused.value;
  show();
}

/** Asks for the details of a topic until the returned function is called. */
export function watch(topic: string): () => void {
  const watchers = (watched.get(topic) ?? 0) + 1;
  watched.set(topic, watchers);
  if (watchers === 1) send({ watch: topic });
  return () => {
    const left = (watched.get(topic) ?? 1) - 1;
    if (left > 0) {
      watched.set(topic, left);
      return;
    }
    watched.delete(topic);
    send({ unwatch: topic });
    const { [topic]: _gone, ...others } = topics.value;
    topics.value = others;
  };
}

export function connect(): void {
  if (socket !== null || document.hidden) return;
  clearTimeout(retryTimer);
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const after = latest === null ? "" : `?after=${number}`;
  const opened = new WebSocket(`${scheme}//${location.host}/ws${after}`);
  socket = opened;
  opened.onopen = () => {
    for (const topic of watched.keys()) send({ watch: topic });
  };
  opened.onmessage = (event: MessageEvent<string>) => {
    if (opened === socket) receive(JSON.parse(event.data) as Message);
  };
  opened.onclose = (event) => {
    if (opened !== socket) return;
    socket = null;
    if (KEY_NOT_VALID.includes(event.code)) signedOut();
    else retry();
  };
}

function receive(message: Message): void {
  clearTimeout(silenceTimer);
  silenceTimer = setTimeout(drop, SILENT_MS);
  if ("topic" in message) {
    if (watched.has(message.topic) && !held()) {
      topics.value = { ...topics.value, [message.topic]: message.data };
    }
    return;
  }
  number = message.n;
  if ("full" in message) latest = message.full;
  else if (latest !== null) latest = applied(latest, message.set, message.gone);
  retryMs = RETRY_FIRST_MS;
  connection.value = "live";
  show();
}

function held(): boolean {
  return paused.value || selecting.value;
}

function show(): void {
  if (latest === null || (held() && frame.value !== null)) return;
  batch(() => {
    frame.value = latest;
  });
}

function send(message: object): void {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

/** Closes the socket without trying again: the tab is hidden. */
function rest(): void {
  clearTimeout(retryTimer);
  clearTimeout(silenceTimer);
  const closing = socket;
  socket = null;
  closing?.close();
}

/** Closes a socket that has died, and tries again. */
function drop(): void {
  rest();
  retry();
}

function retry(): void {
  connection.value = "offline";
  clearTimeout(silenceTimer);
  clearTimeout(retryTimer);
  if (document.hidden || session.value?.signed_in === false) return;
  retryTimer = setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
  retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
}
