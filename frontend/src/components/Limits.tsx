import { useState } from "preact/hooks";
import { useGet } from "../data/api";
import type { ServiceLimits } from "../data/jobs";
import { count } from "../format";
import { serviceLink } from "../router";
import { Dialog } from "./Dialog";
import { LimitForm } from "./LimitEditor";
import { Notice, Refusal } from "./Notice";

/** The limits of every service; each can be changed while it runs. */
export function Limits() {
  const loaded = useGet<{ services: ServiceLimits[] }>("/admin/services");
  const [open, setOpen] = useState<string | null>(null);
  const services = loaded.data?.services ?? [];
  const chosen = services.find((service) => service.name === open);
  return (
    <section class="card" aria-label="Limits">
      <h2 class="card-title">Limits</h2>
      {loaded.problem && <Refusal problem={loaded.problem} retry={loaded.reload} />}
      {loaded.data !== null && services.length === 0 && <Notice>No service is configured.</Notice>}
      {services.length > 0 && (
        <table class="plain wide">
          <thead>
            <tr>
              <th scope="col">service</th>
              <th scope="col" class="right">slots</th>
              <th scope="col" class="right">per min</th>
              <th scope="col" class="right">waiting</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {services.map((service) => (
              <tr key={service.name}>
                <th scope="row">
                  <a href={serviceLink(service.name)}>{service.name}</a>
                  {service.paused && <span class="tag">paused</span>}
                </th>
                <td class="right">{count(slots(service))}</td>
                <td class="right">{orNone(service.rate)}</td>
                <td class="right">{orNone(service.waiting)}</td>
                <td class="right">
                  <button class="quiet" aria-label={`change ${service.name}`} onClick={() => setOpen(service.name)}>
                    change
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {chosen && (
        <Dialog title={chosen.name} onClose={() => setOpen(null)}>
          <LimitForm
            service={chosen}
            onChange={() => {
              setOpen(null);
              loaded.reload();
            }}
          />
        </Dialog>
      )}
    </section>
  );
}

const orNone = (value: number): string => (value === 0 ? "–" : count(value));

/** A service with regions has a limit in each. */
const slots = (service: ServiceLimits): number => service.limit || Object.values(service.regions).reduce((all, limit) => all + limit, 0);
