import { useState } from "preact/hooks";
import { attempt } from "../components/Announcements";
import { Confirm } from "../components/Confirm";
import { gateText, hasBreakers } from "../components/Gates";
import { Header } from "../components/Header";
import { Notice } from "../components/Notice";
import { waitingIn } from "../components/ServiceCard";
import { call } from "../data/api";
import type { Frame, Gate, WorkerRow } from "../data/frame";
import { frame, now } from "../data/live";
import { isAdmin } from "../data/session";
import { count, duration, plural, shortId } from "../format";
import { serviceLink } from "../router";

/** What runs the jobs: workers, regions, models in memory, and the queues of Celery. */
export function FleetView() {
  const shown = frame.value;
  return (
    <>
      <Header title="Fleet" />
      {shown === null ? (
        <Notice>Waiting for the first figures.</Notice>
      ) : (
        <>
          <Workers workers={shown.workers} />
          <CalledServices services={shown.services} />
          <TaskTypes shown={shown} />
          <Models shown={shown} />
          {shown.celery && <Celery queues={shown.celery} />}
        </>
      )}
    </>
  );
}

function Workers({ workers }: { workers: Frame["workers"] }) {
  const [draining, setDraining] = useState<string | null>(null);
  const isDead = (worker: WorkerRow) => Number(worker.state === "dead");
  const rows = Object.entries(workers).sort(([, one], [, other]) => isDead(one) - isDead(other) || one.name.localeCompare(other.name));
  const live = rows.filter(([, worker]) => worker.state === "active").length;
  const names = rows.map(([, worker]) => worker.name);
  const isShared = (id: string, name: string) => !id.includes("/") && names.indexOf(name) !== names.lastIndexOf(name);
  return (
    <section class="card" aria-label="Workers">
      <header class="card-head">
        <h2>Workers</h2>
        <span class="soft">{plural(live, "live worker")}</span>
      </header>
      {rows.length === 0 && <Notice>No worker is registered. Called services need none: Fairlane calls them itself.</Notice>}
      <ul class="workers">
        {rows.map(([id, worker]) => (
          <li key={id} class={worker.state}>
            <div class="worker-name" title={`id ${id}`}>
              <b>{worker.name}</b>
              {isShared(id, worker.name) && <span class="mono soft">{shortId(id)}</span>}
              <span class={worker.state === "dead" ? "wrong" : "soft"}>{stateOf(worker)}</span>
            </div>
            {worker.state === "dead" ? <span /> : <Load worker={worker} />}
            <div class="worker-offers">
              {worker.services.length === 0 ? "any task" : worker.services.join(", ")}
              {worker.models.length > 0 && <span class="soft"> · holds {worker.models.join(", ")}</span>}
              {worker.region && <span class="soft"> · {worker.region}</span>}
              {worker.version && <span class="soft"> · {worker.version}</span>}
            </div>
            {isAdmin.value && worker.state === "active" && (
              <button aria-label={`drain ${worker.name}${isShared(id, worker.name) ? ` ${shortId(id)}` : id.includes("/") ? ` for ${worker.services.join(", ")}` : ""}`} onClick={() => setDraining(id)}>
                Drain…
              </button>
            )}
          </li>
        ))}
      </ul>
      {draining !== null && (
        <Confirm
          title={`Drain ${workers[draining]?.name || draining}?`}
          action="Drain it"
          onClose={() => setDraining(null)}
          onConfirm={() => attempt(() => call("POST", `/admin/workers/${encodeURIComponent(draining)}/drain`), "The worker finishes what it has, and takes no more.")}
        >
          <p>It takes no new task and finishes the ones it has. A drained worker must register again to take more.</p>
        </Confirm>
      )}
    </section>
  );
}

function Load({ worker }: { worker: WorkerRow }) {
  return (
    <div class="worker-load">
      <div class="bar" aria-hidden="true">
        {worker.running > 0 && <i class="plain" style={{ "--share": String(worker.running / Math.max(1, worker.capacity)) }} />}
      </div>
      <span class="figure">
        {count(worker.running)} of {count(worker.capacity)}
      </span>
    </div>
  );
}

function stateOf(worker: WorkerRow): string {
  const silence = (now.value - worker.last_seen) / 1000;
  if (worker.state === "dead") return `dead, last heard ${duration(silence)} ago`;
  return worker.state === "draining" ? "draining" : `heard ${duration(Math.max(0, silence))} ago`;
}

/** Called services by region: every circuit breaker at a glance. */
function CalledServices({ services }: { services: Frame["services"] }) {
  const rows = Object.entries(services).filter(([, service]) => hasBreakers(service));
  if (rows.length === 0) return null;
  const regions = [...new Set(rows.flatMap(([, service]) => Object.keys(service.health)))].sort();
  const several = regions.some((region) => region !== "");
  return (
    <section class="card" aria-label="Called services">
      <h2 class="card-title">{several ? "Called services by region" : "Called services"}</h2>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Called services by region">
        <table class="gates">
          <thead>
            <tr>
              <td />
              {regions.map((region) => (
                <th scope="col">{region || (several ? "no region" : "running")}</th>
              ))}
              <th scope="col">waiting</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, service]) => (
              <tr>
                <th scope="row">
                  <a href={serviceLink(name)}>{name}</a>
                </th>
                {regions.map((region) => (
                  <GateCell gate={service.health[region]} />
                ))}
                <td class="right">{count(waitingIn(service))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="soft small">running of limit · ✓ answers · ✗ does not answer · ? is being tried again</p>
    </section>
  );
}

function GateCell({ gate }: { gate: Gate | undefined }) {
  if (gate === undefined) return <td class="soft">–</td>;
  return (
    <td class={gate.state === "closed" ? "gate" : "gate open"} title={gateText(gate)}>
      <span aria-hidden="true">{gate.state === "closed" ? "✓" : gate.state === "open" ? "✗" : "?"}</span>{" "}
      {count(gate.running)}
      {gate.limit === null ? "" : ` of ${count(gate.limit)}`}
      <span class="visually-hidden"> {gateText(gate)}</span>
    </td>
  );
}

/** What workers pull, and how many of them offer it. */
function TaskTypes({ shown }: { shown: Frame }) {
  const rows = Object.entries(shown.services).filter(([, service]) => service.kind === "workers" && !hasBreakers(service));
  if (rows.length === 0) return null;
  const live = Object.values(shown.workers).filter((worker) => worker.state === "active");
  const offers = (name: string) => live.filter((worker) => worker.services.length === 0 || worker.services.includes(name)).length;
  return (
    <section class="card" aria-label="Task types">
      <h2 class="card-title">Task types that workers pull</h2>
      <table class="plain wide">
        <thead>
          <tr>
            <th scope="col">task type</th>
            <th scope="col" class="right">live workers</th>
            <th scope="col" class="right">running</th>
            <th scope="col" class="right">waiting</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, service]) => (
            <tr>
              <th scope="row">
                <a href={serviceLink(name)}>{name}</a>
              </th>
              <td class={offers(name) === 0 ? "right wrong" : "right"}>{count(offers(name))}</td>
              <td class="right">
                {count(service.running)}
                {service.limit === null ? "" : ` of ${count(service.limit)}`}
              </td>
              <td class="right">{count(waitingIn(service))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** A model in the slots of a called service, or in the memory of a worker. */
function Models({ shown }: { shown: Frame }) {
  const workers = Object.values(shown.workers);
  const inWorkers = workers.flatMap((worker) => worker.models.map((model) => ({ model, where: `worker ${worker.name}` })));
  const known = new Set(inWorkers.map((place) => place.model));
  const inServices = Object.entries(shown.services).flatMap(([name, service]) =>
    service.models
      .filter(({ model }) => service.kind !== "workers" || !known.has(model))
      .map(({ model, slots }) => ({ model, where: service.kind === "workers" ? name : `${name}, ${plural(slots, "slot")}` })),
  );
  const places = [...inServices, ...inWorkers];
  const models = [...new Set(places.map((place) => place.model))].sort();
  return (
    <section class="card" aria-label="Models in memory">
      <h2 class="card-title">Models in memory</h2>
      {models.length === 0 && <Notice>No model is loaded.</Notice>}
      <dl class="about">
        {models.map((model) => (
          <>
            <dt>{model}</dt>
            <dd>{places.filter((place) => place.model === model).map((place) => place.where).join("; ")}</dd>
          </>
        ))}
      </dl>
    </section>
  );
}

function Celery({ queues }: { queues: NonNullable<Frame["celery"]> }) {
  const rows = Object.entries(queues);
  return (
    <section class="card" aria-label="Celery queues">
      <h2 class="card-title">Celery queues</h2>
      <table class="plain wide">
        <thead>
          <tr>
            <th scope="col">queue</th>
            <th scope="col" class="right">pending</th>
            <th scope="col" class="right">running</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, queue]) => (
            <tr>
              <th scope="row">{name}</th>
              <td class="right">{count(queue.pending)}</td>
              <td class="right">{count(queue.running)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
