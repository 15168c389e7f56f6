import type { Alert } from "../data/frame";
import { frame } from "../data/live";
import { CopyButton } from "./CopyButton";

const MARKS = { wrong: "✗", warning: "!", unknown: "?", ok: "✓" } as const;

/** What is wrong: the findings of the doctor's checks. */
export function Alerts() {
  const alerts = frame.value?.alerts ?? [];
  return (
    <div role="status" aria-live="polite" class="alerts">
      {alerts.map((alert) => (
        <AlertLine key={`${alert.check}/${alert.subject}`} alert={alert} />
      ))}
    </div>
  );
}

export function AlertLine({ alert }: { alert: Alert }) {
  return (
    <div class={`alert ${alert.verdict}`}>
      <span class="mark" aria-label={alert.verdict}>{MARKS[alert.verdict]}</span>
      <p>
        <Sentence subject={alert.subject} text={alert.text} />{" "}
        {alert.page && <a class="why-link" href={alert.page} target="_blank" rel="noreferrer">why</a>}
      </p>
      {alert.command && <CopyButton text={alert.command} code />}
    </div>
  );
}

/** The subject stands out, also where the sentence names it itself. */
function Sentence({ subject, text }: { subject: string; text: string }) {
  if (subject === "") return <>{text}</>;
  if (!text.startsWith(subject)) return <><b>{subject}</b> {text}</>;
  return <><b>{subject}</b>{text.slice(subject.length)}</>;
}
