import type { Service } from "../data/frame";
import { frame } from "../data/live";
import { count } from "../format";
import { tierClass } from "../tiers";

/** How many wait, by tier. The table behind it is the table of tiers in the same card. */
export function WaitingBar({ service }: { service: Service }) {
  const waiting = (tier: string) => service.tiers[tier]?.waiting ?? 0;
  const tiers = (frame.value?.tiers ?? []).map((tier) => tier.name).filter((tier) => waiting(tier) > 0);
  const total = tiers.reduce((sum, tier) => sum + waiting(tier), 0);
  return (
    <div class="waiting">
      <span class="label">waiting</span>
      <div class="waiting-line">
        <div class="bar" aria-hidden="true">
          {tiers.map((tier) => (
            <i
              key={tier}
              class={tierClass(tier)}
              title={`${count(waiting(tier))} ${tier}`}
              style={{ "--share": String(waiting(tier) / total) }}
            />
          ))}
        </div>
        <b class="figure">{count(total)}</b>
      </div>
    </div>
  );
}
