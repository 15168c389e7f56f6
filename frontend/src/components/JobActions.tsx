import { useState } from "preact/hooks";
import { call, useGet } from "../data/api";
import { ENDED, type Explanation, type JobDetail, type Quote } from "../data/jobs";
import { isAdmin, mayChange } from "../data/session";
import { count, duration } from "../format";
import { attempt } from "./Announcements";
import { Confirm } from "./Confirm";
import { CopyButton, toClipboard } from "./CopyButton";
import { Dialog } from "./Dialog";
import { Json } from "./Json";

interface Props {
  job: JobDetail;
  onChange: () => void;
}

/** What a user can do about a job. The price of a skip is asked for first. */
export function JobActions({ job, onChange }: Props) {
  const [open, setOpen] = useState<"cancel" | "skip" | "explain" | null>(null);
  const [link, setLink] = useState("");
  const path = `/api/v1/jobs/${encodeURIComponent(job.job_id)}`;
  const queued = job.status === "queued";
  const quote = useGet<Quote>(queued && job.user_id !== null ? `${path}/skip` : null).data;
  const explanation = useGet<Explanation>(open === "explain" ? `${path}/explain` : null).data;
  const act = (action: () => Promise<unknown>, done: string) => attempt(action, done).then(onChange);
  const copyLink = () =>
    attempt(async () => {
      const made = await call<{ url: string }>("POST", `${path}/link`, {});
      const address = new URL(made.url, location.href).href;
      setLink(address);
      await toClipboard(address);
    }, "The link opens without a key.");
  const failed = job.status === "failed" || job.status === "dead";
  const payable = quote !== null && quote.price > 0;
  return (
    <div class="actions">
      {mayChange.value && payable && (
        <button class="primary" onClick={() => setOpen("skip")}>
          Skip for {count(quote.price)}
          {quote.seconds_saved && quote.seconds_saved.p50 > 0 ? ` · saves about ${duration(quote.seconds_saved.p50)}` : ""}
        </button>
      )}
      {mayChange.value && failed && job.error?.resumable && (
        <button class="primary" onClick={() => void act(() => call("POST", `${path}/resume`), "It goes on from the failed step.")}>
          Resume
        </button>
      )}
      {isAdmin.value && failed && (
        <button onClick={() => void act(() => call("POST", `${path}/replay`), "It runs again, with all attempts.")}>Replay</button>
      )}
      <button onClick={() => void copyLink()}>Copy link for {job.user_id ?? "the user"}</button>
      <button onClick={() => setOpen("explain")}>Explain as JSON</button>
      {mayChange.value && !ENDED.has(job.status) && (
        <button class="danger" onClick={() => setOpen("cancel")}>
          Cancel
        </button>
      )}
      {open === "cancel" && (
        <Confirm
          title="Cancel this job?"
          action="Cancel the job"
          danger
          onClose={() => setOpen(null)}
          onConfirm={() => act(() => call("DELETE", path), "The job is cancelled.")}
        >
          <p>It ends at once and for good. A running call is told to stop, and its result is refused.</p>
        </Confirm>
      )}
      {open === "skip" && payable && (
        <Confirm
          title={`Pay ${count(quote.price)} ${quote.currency} to go first?`}
          action={`Pay ${count(quote.price)}`}
          onClose={() => setOpen(null)}
          onConfirm={() => act(() => call("POST", `${path}/skip`, { max_price: quote.price }), "Paid. The job goes first.")}
        >
          <p>
            {job.user_id} has {count(quote.balance)} {quote.currency}.
            {quote.seconds_saved ? ` It would save about ${duration(quote.seconds_saved.p50)}.` : ""} The price is refunded if the job
            ends without a completed step.
          </p>
        </Confirm>
      )}
      {link !== "" && (
        <Dialog title="A page for the user" onClose={() => setLink("")}>
          <p>This link shows the place of this job, a range of times and the result, without a key and without other users.</p>
          <CopyButton text={link} code />
        </Dialog>
      )}
      {open === "explain" && (
        <Dialog title="Explain" onClose={() => setOpen(null)} wide>
          <Json value={explanation ?? "loading"} label="Explanation" />
        </Dialog>
      )}
    </div>
  );
}
