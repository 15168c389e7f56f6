import { tierClass } from "../tiers";

export function TierDot({ tier }: { tier: string | null }) {
  return <i class={`dot ${tierClass(tier)}`} title={tier ?? ""} />;
}
