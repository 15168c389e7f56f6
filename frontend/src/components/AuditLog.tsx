import { useGet } from "../data/api";
import type { AuditEntry } from "../data/jobs";
import { clock } from "../format";
import { Notice, Refusal } from "./Notice";

const SHOWN = 50;

/** Who changed what, newest first. */
export function AuditLog() {
  const loaded = useGet<{ changes: AuditEntry[] }>(`/admin/audit?limit=${SHOWN}`);
  const changes = loaded.data?.changes ?? [];
  return (
    <section class="card" aria-label="Audit">
      <header class="card-head">
        <h2>Audit</h2>
        <button class="quiet" onClick={loaded.reload}>
          reload
        </button>
      </header>
      {loaded.problem && <Refusal problem={loaded.problem} retry={loaded.reload} />}
      {loaded.data !== null && changes.length === 0 && <Notice>Nothing has been changed yet.</Notice>}
      <ol class="audit">
        {changes.map((change) => (
          <li>
            <time dateTime={change.at}>{clock(change.at)}</time>
            <span>
              <b>{change.action}</b> {change.target}
              {(change.before ?? change.after) !== null && (
                <span class="soft">
                  {" "}
                  {change.before ?? "none"} → {change.after ?? "none"}
                </span>
              )}
            </span>
            <span class="soft">{change.actor}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
