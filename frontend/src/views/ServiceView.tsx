import { useEffect } from "preact/hooks";
import { FairShare } from "../components/FairShare";
import { Gates, hasBreakers } from "../components/Gates";
import { Header } from "../components/Header";
import { LimitEditor } from "../components/LimitEditor";
import { Notice } from "../components/Notice";
import { Residency } from "../components/Residency";
import { Ribbon } from "../components/Ribbon";
import { subtitle, TierTable, Waits, waitingIn } from "../components/ServiceCard";
import { Slots } from "../components/Slots";
import { WaitingBar } from "../components/WaitingBar";
import { WhatIf } from "../components/WhatIf";
import type { ServiceDetail } from "../data/frame";
import { frame, now, topics, watch } from "../data/live";
import { isAdmin } from "../data/session";
import { count, percent, rate } from "../format";
import { navigate, serviceLink } from "../router";

/** One service: who is next, what its slots did, whether users get their share, and its limits. */
export function ServiceView({ name }: { name: string | null }) {
  const names = Object.keys(frame.value?.services ?? {});
  const first = names[0];
  useEffect(() => {
    if (name === null && first !== undefined) navigate(serviceLink(first), { replace: true });
  }, [name, first]);
  useEffect(() => (name === null ? undefined : watch(`service:${name}`)), [name]);
  const service = name === null ? undefined : frame.value?.services[name];
  if (name === null || service === undefined) {
    return (
      <>
        <Header title={name ?? "Service"} />
        {names.length > 1 && <ServiceTabs names={names} current={name} />}
        <Notice>
          {frame.value === null
            ? "Waiting for the first figures."
            : name === null
              ? "No service is configured."
              : `No service is called ${name}, or no task of this type waits now.`}
        </Notice>
      </>
    );
  }
  const detail = topics.value[`service:${name}`] as ServiceDetail | undefined;
  return (
    <>
      <Header title={name}>
        <span class="pill">{subtitle(service)}</span>
      </Header>
      {names.length > 1 && <ServiceTabs names={names} current={name} />}
      <section class="card service" aria-label="Now">
        <div class="service-head">
          <Slots name={name} service={service} />
          <WaitingBar service={service} />
          <Waits service={service} />
          <div class="started">
            <span class="label">started</span>
            <b class="figure">{rate(service.started_per_second)}</b>
          </div>
          <div class="started">
            <span class="label">arriving</span>
            <b class="figure">{detail ? rate(detail.arrivals_per_second) : "–"}</b>
          </div>
        </div>
        <TierTable name={name} service={service} />
      </section>
      <div class="columns">
        <div class="column">
          <section class="card" aria-label="Next">
            <header class="card-head">
              <h2>Who is next</h2>
              <span class="soft">{accuracy(detail)}</span>
            </header>
            <Ribbon service={name} next={detail?.next ?? service.next} waiting={waitingIn(service)} shown={12} title="user" />
          </section>
          {service.slots.length > 0 && <Residency spans={detail?.residency ?? []} now={now.value} />}
        </div>
        <div class="column side">
          {hasBreakers(service) && (
            <section class="card" aria-label="Regions">
              <h2 class="card-title">Does it answer?</h2>
              <Gates health={service.health} />
            </section>
          )}
          {service.slots.length > 0 && <FairShare shares={detail?.shares ?? []} />}
          {isAdmin.value && (
            <section class="card" aria-label="Limits">
              <h2 class="card-title">Limits</h2>
              <LimitEditor name={name} />
            </section>
          )}
          {isAdmin.value && service.limit !== null && service.limit > 0 && (
            <section class="card" aria-label="What if">
              <h2 class="card-title">What if</h2>
              <WhatIf name={name} limit={service.limit} />
            </section>
          )}
        </div>
      </div>
    </>
  );
}

export function ServiceTabs({ names, current }: { names: string[]; current: string | null }) {
  return (
    <nav class="filters" aria-label="Services">
      {names.map((each) => (
        <a class="chip" href={serviceLink(each)} aria-current={each === current ? "true" : undefined}>
          {each}
        </a>
      ))}
    </nav>
  );
}

function accuracy(detail: ServiceDetail | undefined): string {
  const found = detail?.accuracy;
  if (!found || found.held === null || found.estimates === 0) return "";
  return `${percent(found.held)} of the last ${count(found.estimates)} estimates held`;
}
