import { signal } from "@preact/signals";

const SHOWN_MS = 5_000;
const text = signal("");
const isBad = signal(false);
let timer: ReturnType<typeof setTimeout> | undefined;

/** Tells the user what has happened, in one sentence at the lower edge. */
export function say(sentence: string, { bad = false } = {}): void {
  text.value = sentence;
  isBad.value = bad;
  clearTimeout(timer);
  timer = setTimeout(() => (text.value = ""), SHOWN_MS);
}

/** Runs an action; says what it did, or why it was refused. */
export async function attempt(action: () => Promise<unknown>, done: string): Promise<boolean> {
  try {
    await action();
    say(done);
    return true;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), { bad: true });
    return false;
  }
}

export function Announcements() {
  return (
    <div role="status" aria-live="polite" class={`toast ${text.value ? "shown" : ""} ${isBad.value ? "bad" : ""}`}>
      {text.value}
    </div>
  );
}
