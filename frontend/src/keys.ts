/** Every key of the dashboard. A view may take keys for itself while it is shown. */

import { useLayoutEffect } from "preact/hooks";

export interface Shortcut {
  key: string;
  does: string;
  run: () => void;
}

type Handlers = Record<string, (event: KeyboardEvent) => void>;

const stack: Handlers[] = [];

/** What the help dialog lists. */
export const KEYS: [string, string][] = [
  ["N S J F C", "Now, Service, Jobs, Fleet, Control"],
  ["/", "search jobs"],
  ["Ctrl K", "go to anything"],
  ["j k", "next and previous job, with a peek"],
  ["x", "select the job"],
  ["Enter", "open the job"],
  ["p", "pause, go on"],
  ["t", "theme: dark, light, as the system"],
  ["Esc", "close, back"],
  ["?", "this list"],
];

/**
 * Takes keys while the component is mounted; the latest component wins.
 *
 * A layout effect, not an effect: an effect runs after the next paint, and a key pressed before it would meet the
 * handlers of the drawing before.
 */
export function useKeys(handlers: Handlers): void {
  useLayoutEffect(() => {
    stack.push(handlers);
    return () => remove(handlers);
  });
}

/** Takes keys that no other component takes, however often this one is drawn again. */
export function useGlobalKeys(handlers: Handlers): void {
  useLayoutEffect(() => {
    stack.unshift(handlers);
    return () => remove(handlers);
  });
}

function remove(handlers: Handlers): void {
  stack.splice(stack.indexOf(handlers), 1);
}

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    const name = nameOf(event);
    if (name === null) return;
    if (isWriting(event.target) && name !== "Escape" && name !== "Ctrl-K") return;
    if (document.querySelector("dialog[open]") !== null && name !== "Ctrl-K") return;
    const handlers = stack.findLast((each) => Object.hasOwn(each, name));
    if (handlers === undefined) return;
    event.preventDefault();
    handlers[name]?.(event);
  });
}

function nameOf(event: KeyboardEvent): string | null {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") return "Ctrl-K";
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return null;
  return event.key;
}

function isWriting(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}
