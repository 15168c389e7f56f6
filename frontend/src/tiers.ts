/** The place of a tier decides its colour; the style sheet has six of them. */

import { frame } from "./data/live";

const COLOURS = 6;

export function rank(tier: string | null): number {
  const found = frame.value?.tiers.findIndex((each) => each.name === tier) ?? -1;
  return found < 0 ? -1 : Math.min(found, COLOURS - 1);
}

export function tierClass(tier: string | null): string {
  const found = rank(tier);
  return found < 0 ? "t-none" : `t${found}`;
}
