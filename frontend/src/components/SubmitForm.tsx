import { useState } from "preact/hooks";
import { call, Problem } from "../data/api";
import type { Frame } from "../data/frame";
import { frame } from "../data/live";
import { session } from "../data/session";
import { jobLink, navigate } from "../router";
import { say } from "./Announcements";
import { Dialog } from "./Dialog";

/** Submits a job. It warns before if no live worker can run it. */
export function SubmitForm({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState(Object.keys(frame.value?.services ?? {})[0] ?? "");
  const [user, setUser] = useState("");
  const [tier, setTier] = useState("");
  const [region, setRegion] = useState("");
  const [model, setModel] = useState("");
  const [tags, setTags] = useState("");
  const [input, setInput] = useState('{ "prompt": "A futuristic city" }');
  const [refused, setRefused] = useState("");
  const value = parsedJson(input);
  const may = session.value;
  const choosesTier = may?.set_priority === true;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (value instanceof Error) return;
    const body = {
      feature_name: name,
      input_data: value.value,
      ...(user && { user_id: user }),
      ...(tier && { priority: tier }),
      ...(model && { model }),
      ...(region && { regions: [region] }),
      ...(tags.trim() && { tags: tags.split(",").map((tag) => tag.trim()).filter((tag) => tag !== "") }),
    };
    try {
      const accepted = await call<{ job_id: string }>("POST", "/api/v1/jobs", body);
      say("The job is accepted.");
      navigate(jobLink(accepted.job_id));
    } catch (error) {
      setRefused(error instanceof Problem ? error.message : String(error));
    }
  };
  const warning = frame.value === null ? null : obstacle(frame.value, name, region);
  return (
    <Dialog title="Submit a job" onClose={onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <label>
          Service, pipeline or task
          <input required list="known-services" value={name} onInput={(event) => setName(event.currentTarget.value)} />
          <datalist id="known-services">
            {Object.keys(frame.value?.services ?? {}).map((each) => (
              <option value={each} />
            ))}
          </datalist>
        </label>
        {warning && (
          <div class="alert warning" role="status">
            <span class="mark" aria-hidden="true">!</span>
            <p>{warning}</p>
          </div>
        )}
        <label>
          Input, as JSON
          <textarea rows={5} spellcheck={false} value={input} onInput={(event) => setInput(event.currentTarget.value)} aria-invalid={value instanceof Error} />
        </label>
        {value instanceof Error && <p class="wrong">{value.message}</p>}
        <div class="form-row">
          {may?.act_as !== false && (
            <label>
              User
              <input value={user} onInput={(event) => setUser(event.currentTarget.value)} />
            </label>
          )}
          {choosesTier && (
            <label>
              Tier
              <select value={tier} onChange={(event) => setTier(event.currentTarget.value)}>
                <option value="">as stored</option>
                {(frame.value?.tiers ?? []).map((each) => (
                  <option>{each.name}</option>
                ))}
              </select>
            </label>
          )}
        </div>
        <div class="form-row">
          <label>
            Model
            <input value={model} onInput={(event) => setModel(event.currentTarget.value)} />
          </label>
          <label>
            Region
            <input value={region} onInput={(event) => setRegion(event.currentTarget.value)} />
          </label>
        </div>
        <label>
          Tags, separated by commas
          <input value={tags} onInput={(event) => setTags(event.currentTarget.value)} />
        </label>
        {refused && <p class="wrong" role="alert">{refused}</p>}
        <div class="actions">
          <button class="primary" type="submit" disabled={value instanceof Error}>
            Submit
          </button>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function parsedJson(text: string): { value: unknown } | Error {
  try {
    return { value: text.trim() === "" ? null : (JSON.parse(text) as unknown) };
  } catch {
    return new Error("This is not JSON yet.");
  }
}

/** Why a job would wait for good, or null. */
export function obstacle(seen: Frame, name: string, region: string): string | null {
  const service = Object.hasOwn(seen.services, name) ? seen.services[name] : undefined;
  if (service?.paused) return `${name} is paused: the job waits until it is opened again.`;
  if (service?.kind === "called") {
    const gates = Object.entries(service.health);
    const fitting = region === "" ? gates : gates.filter(([each]) => each === region || each === "");
    if (gates.length > 0 && fitting.length === 0) return `${name} does not run in ${region}. Known regions: ${gates.map(([each]) => each).join(", ")}.`;
    if (fitting.length > 0 && fitting.every(([, gate]) => gate.state === "open")) return `${name} does not answer now: the job waits until it does.`;
    return null;
  }
  if (service === undefined) return Object.keys(seen.services).length === 0 || name === "" ? null : workersFor(seen, name, region) ? null : `${name} is not a service that waits or runs now. A pipeline is fine; for a task, no live worker offers it.`;
  if (service.kind === "workers" && !workersFor(seen, name, region)) return `No live worker can run ${name}${region ? ` in ${region}` : ""}: the job waits until one comes.`;
  return null;
}

function workersFor(seen: Frame, name: string, region: string): boolean {
  return Object.values(seen.workers).some(
    (worker) =>
      worker.state === "active" &&
      (worker.services.length === 0 || worker.services.includes(name)) &&
      (region === "" || worker.region === null || worker.region === region),
  );
}
