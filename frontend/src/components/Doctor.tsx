import { useState } from "preact/hooks";
import { useGet } from "../data/api";
import type { Finding } from "../data/jobs";
import { frame } from "../data/live";
import { plural } from "../format";
import { AlertLine } from "./Alerts";
import { Notice, Refusal } from "./Notice";

const ORDER = ["wrong", "warning", "unknown"] as const;

/** What the checks found: those of the strip on Now, or every check of `fairlane doctor` on demand. */
export function Doctor() {
  const [asked, setAsked] = useState(false);
  const loaded = useGet<{ findings: Finding[]; seconds: number }>(asked ? "/admin/doctor" : null);
  const findings = loaded.data?.findings ?? [];
  const told = loaded.data === null ? (frame.value?.alerts ?? []) : ORDER.flatMap((verdict) => findings.filter((finding) => finding.verdict === verdict));
  const fine = findings.filter((finding) => finding.verdict === "ok").length;
  return (
    <section class="card" aria-label="Doctor">
      <header class="card-head">
        <h2>Doctor</h2>
        {loaded.data && (
          <span class="soft">
            {plural(fine, "check")} fine · {loaded.data.seconds.toFixed(1)} s · read-only
          </span>
        )}
        <button onClick={() => (asked ? loaded.reload() : setAsked(true))}>Run every check</button>
      </header>
      {loaded.problem && <Refusal problem={loaded.problem} retry={loaded.reload} />}
      {asked && loaded.data === null && !loaded.problem && <Notice>Looking.</Notice>}
      {told.length === 0 && <p>Nothing is wrong.</p>}
      <div class="stack">
        {told.map((finding) => (
          <AlertLine key={`${finding.check}/${finding.subject}`} alert={finding} />
        ))}
      </div>
    </section>
  );
}
