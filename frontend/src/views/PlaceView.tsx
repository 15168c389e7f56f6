import { useEffect, useState } from "preact/hooks";
import { ProgressBar } from "../components/Standing";
import { get, Problem } from "../data/api";
import { ENDED, type Place } from "../data/jobs";
import { count, ordinal, plural, range, duration } from "../format";
import { Json } from "../components/Json";

/** For the end user of a job, by a signed link: the place in the queue, a range of times, the result. */
export function PlaceView({ token }: { token: string }) {
  const [place, setPlace] = useState<Place | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const path = `/api/v1/place/${encodeURIComponent(token)}`;
  useEffect(() => {
    let stream: EventSource | null = null;
    const show = (found: Place) => {
      setPlace(found);
      setProblem(null);
      if (ENDED.has(found.status)) stream?.close();
    };
    const listen = () => {
      stream?.close();
      stream = null;
      if (document.hidden) return;
      get<Place>(path).then(
        (found) => {
          show(found);
          if (ENDED.has(found.status)) return;
          stream = new EventSource(`${path}/events`);
          stream.addEventListener("place", (event: MessageEvent<string>) => show(JSON.parse(event.data) as Place));
        },
        (error: unknown) => error instanceof Problem && setProblem(error),
      );
    };
    listen();
    document.addEventListener("visibilitychange", listen);
    return () => {
      stream?.close();
      document.removeEventListener("visibilitychange", listen);
    };
  }, [path]);
  return (
    <main class="alone">
      <div class="card place-card">
        {place === null ? (
          <p class={problem ? "" : "soft"} role="status">
            {problem ? gone(problem) : "Looking for your place."}
          </p>
        ) : (
          <YourPlace place={place} />
        )}
        {place !== null && problem !== null && <p class="soft">The connection is lost; this page tries again.</p>}
      </div>
    </main>
  );
}

function YourPlace({ place }: { place: Place }) {
  return (
    <>
      <h1 class="soft">{place.feature_name}</h1>
      <p class="place-line" role="status">{headline(place)}</p>
      {sentence(place) && <p class="place-detail">{sentence(place)}</p>}
      {place.progress && place.status === "running" && <ProgressBar percent={place.progress.percent} text={place.progress.text} />}
      {place.message && ENDED.has(place.status) && place.status !== "completed" && <p class={isBad(place) ? "wrong" : "soft"}>{place.message}</p>}
      {failure(place) && failure(place) !== place.message && <p class="wrong">{failure(place)}</p>}
      {place.status === "completed" && place.result !== undefined && place.result !== null && <Json value={place.result} label="Result" />}
      {!ENDED.has(place.status) && <p class="soft small">This page follows along. You may close it; your place stays.</p>}
    </>
  );
}

function headline(place: Place): string {
  switch (place.status) {
    case "queued":
      if (place.position === null) return "In line";
      return place.position <= 1 ? "You are next" : `You are ${ordinal(place.position)} in line`;
    case "running":
      return "In progress";
    case "completed":
      return "Done";
    case "cancelled":
      return "Cancelled";
    case "expired":
      return "This job has ended";
    default:
      return "It did not work out";
  }
}

function sentence(place: Place): string {
  if (place.status !== "queued") return "";
  const parts = [];
  if (place.eta) parts.push(`Starts in ${range(place.eta.p50_seconds, place.eta.p90_seconds)}.`);
  if (place.ahead && place.ahead.jobs > 0) {
    const work = place.ahead.seconds ? `, about ${duration(place.ahead.seconds)} of work` : "";
    parts.push(`Before yours: ${plural(place.ahead.jobs, "job")}${work}.`);
  }
  return parts.join(" ");
}

const isBad = (place: Place): boolean => place.status === "failed" || place.status === "dead";

function failure(place: Place): string {
  if (!place.error) return "";
  return typeof place.error === "string" ? place.error : place.error.message;
}

function gone(problem: Problem): string {
  if (problem.status === 404 || problem.status === 410 || problem.status === 401 || problem.status === 403)
    return "This link is not valid any more. Ask for a new one where you got it.";
  return problem.status === 429 ? `Too many requests: wait a moment, then reload (${count(problem.status)}).` : problem.message;
}
