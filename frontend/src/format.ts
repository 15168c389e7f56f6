/** How figures are written: durations with a unit, times as ranges, never a false precision. */

import { signal } from "@preact/signals";

/** A demo runs faster than it shows: durations are multiplied by this. */
export const speed = signal(1);

const MINUTE = 60;
const HOUR = 3_600;
const DAY = 86_400;
const numbers = new Intl.NumberFormat("en");

interface Unit {
  name: string;
  seconds: number;
}
const SECONDS: Unit = { name: "s", seconds: 1 };
const UNITS: Unit[] = [
  { name: "d", seconds: DAY },
  { name: "h", seconds: HOUR },
  { name: "min", seconds: MINUTE },
];

/** 0.4 s, 4.1 s, 47 s, 12 min, 3 h, 2 d */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return "–";
  const shown = Math.max(0, seconds * speed.value);
  const unit = unitOf(shown);
  return `${figure(shown / unit.seconds)} ${unit.name}`;
}

/** The time that the lines and shares of the dashboard look back. */
export const LOOK_BACK_SECONDS = 900;

/** A wait: "8–12 s", "about 5 s", "now". */
export function range(p50: number | null | undefined, p90: number | null | undefined): string {
  if (p50 == null || p90 == null) return "–";
  const low = Math.max(0, p50 * speed.value);
  const high = Math.max(low, p90 * speed.value);
  if (high < 0.1) return "now";
  const unit = unitOf(high);
  const write = high / unit.seconds < 3 ? figure : rounded;
  const [from, to] = [write(low / unit.seconds), write(high / unit.seconds)];
  return from === to ? `about ${to} ${unit.name}` : `${from}–${to} ${unit.name}`;
}

/** A rate in the larger of the usual units: 2.9/s, 4/min, 0/s. */
export function rate(perSecond: number): string {
  const shown = perSecond / speed.value;
  if (shown >= 0.1 || shown === 0) return `${figure(shown)}/s`;
  return shown * MINUTE >= 0.1 ? `${figure(shown * MINUTE)}/min` : `${figure(shown * HOUR)}/h`;
}

/** Rounded down: 99.6 % is not everything. */
export const percent = (share: number): string => `${Math.floor(share * 100 + 1e-9)} %`;

export const count = (value: number): string => numbers.format(value);

/** "1 job", "1,204 jobs" */
export const plural = (value: number, one: string, several = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : several}`;

export function ordinal(value: number): string {
  const tens = value % 100;
  const ending = tens > 10 && tens < 14 ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th");
  return `${count(value)}${ending}`;
}

/** 07:20:41 in the user's time zone; with the day if it is another one. */
export function clock(time: number | string | null | undefined): string {
  if (time == null) return "–";
  const date = new Date(time);
  const hours = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? hours : `${day(date)} ${hours}`;
}

/** 07:20:41.204 */
export function preciseClock(time: number | string): string {
  const milliseconds = String(new Date(time).getMilliseconds()).padStart(3, "0");
  return `${new Date(time).toLocaleTimeString("en-GB")}.${milliseconds}`;
}

const day = (date: Date): string => date.toLocaleDateString("en-CA");

/** The wall-clock time between two moments, in seconds. */
export const secondsBetween = (from: number | string, to: number | string): number =>
  (new Date(to).getTime() - new Date(from).getTime()) / 1000;

/** 019a8e2c…7f41 */
export const shortId = (id: string): string => (id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);

function unitOf(seconds: number): Unit {
  // 90 s is written in seconds, 100 s in minutes; the same at the larger units.
  return UNITS.find((unit) => seconds >= unit.seconds * (unit.name === "min" ? 1.65 : 2)) ?? SECONDS;
}

function figure(value: number): string {
  if (value >= 9.95) return rounded(value);
  const text = value.toFixed(1);
  return text.endsWith(".0") ? text.slice(0, -2) : text;
}

const rounded = (value: number): string => numbers.format(Math.round(value));
