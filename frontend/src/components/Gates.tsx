import type { Gate, Service } from "../data/frame";
import { clock, count, speed } from "../format";

/** The circuit breaker of a service in each region. */
export function Gates({ health }: { health: Record<string, Gate> }) {
  const regions = Object.entries(health);
  return (
    <table class="plain wide">
      <thead>
        <tr>
          <th scope="col">region</th>
          <th scope="col">state</th>
          <th scope="col" class="right">running</th>
          <th scope="col" class="right">waiting</th>
        </tr>
      </thead>
      <tbody>
        {regions.map(([region, gate]) => (
          <tr>
            <td>{region || "everywhere"}</td>
            <td class={gate.state === "closed" ? undefined : "wrong"}>{gateText(gate)}</td>
            <td class="right">
              {count(gate.running)}
              {gate.limit === null ? "" : ` of ${count(gate.limit)}`}
            </td>
            <td class="right">{count(gate.waiting)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Fairlane calls the service itself, so it knows whether it answers. */
export const hasBreakers = (service: Service): boolean =>
  service.kind === "called" || service.kind === "celery" || Object.keys(service.health).some((region) => region !== "");

export function gateText(gate: Gate): string {
  if (gate.state === "closed") return "answers";
  const until = gate.until !== null && speed.value === 1 ? `, tried again at ${clock(gate.until)}` : "";
  return gate.state === "open" ? `does not answer${until}` : "being tried again";
}
