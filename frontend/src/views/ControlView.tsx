import { useState } from "preact/hooks";
import { AuditLog } from "../components/AuditLog";
import { Doctor } from "../components/Doctor";
import { Header } from "../components/Header";
import { Keys } from "../components/Keys";
import { Limits } from "../components/Limits";
import { Notice } from "../components/Notice";
import { UserCard } from "../components/UserCard";
import { Webhooks } from "../components/Webhooks";
import { WhatIf } from "../components/WhatIf";
import { frame } from "../data/live";
import { isAdmin, session } from "../data/session";
import { count, duration, LOOK_BACK_SECONDS, percent } from "../format";
import { tierClass } from "../tiers";

/** What an administrator sets: limits, tiers, users, keys, webhooks; and what was changed. */
export function ControlView() {
  if (!isAdmin.value) {
    return (
      <>
        <Header title="Control" />
        <Notice>Control needs a key of the role admin; yours is {session.value?.role ?? "none"}.</Notice>
      </>
    );
  }
  return (
    <>
      <Header title="Control" />
      <div class="columns even">
        <div class="column">
          <Doctor />
          <Limits />
          <WhatIfCard />
        </div>
        <div class="column">
          <TierCard />
          <UserCard />
          <Keys />
          <Webhooks />
          <AuditLog />
        </div>
      </div>
    </>
  );
}

function TierCard() {
  const tiers = frame.value?.tiers ?? [];
  return (
    <section class="card" aria-label="Tiers">
      <header class="card-head">
        <h2>Tiers</h2>
        <span class="soft">best first; set in the settings file</span>
      </header>
      <table class="plain wide">
        <thead>
          <tr>
            <th scope="col">tier</th>
            <th scope="col" class="right">target</th>
            <th scope="col" class="right">in target</th>
            <th scope="col" class="right">started, {duration(LOOK_BACK_SECONDS)}</th>
          </tr>
        </thead>
        <tbody>
          {tiers.map((tier) => (
            <tr class={tierClass(tier.name)}>
              <th scope="row" class="tier-name">{tier.name}</th>
              <td class="right">{duration(tier.target_seconds)}</td>
              <td class="right">{tier.share_in_target === null ? "–" : percent(tier.share_in_target)}</td>
              <td class="right">{count(tier.started)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function WhatIfCard() {
  const services = Object.entries(frame.value?.services ?? {}).filter(([, service]) => (service.limit ?? 0) > 0);
  const [chosen, setChosen] = useState("");
  const [name, service] = services.find(([each]) => each === chosen) ?? services[0] ?? [];
  if (name === undefined || service?.limit == null) return null;
  return (
    <section class="card" aria-label="What if">
      <header class="card-head">
        <h2>What if</h2>
        <select aria-label="Service" value={name} onChange={(event) => setChosen(event.currentTarget.value)}>
          {services.map(([each]) => (
            <option>{each}</option>
          ))}
        </select>
      </header>
      <WhatIf name={name} limit={service.limit} />
    </section>
  );
}
