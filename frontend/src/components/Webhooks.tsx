import { useState } from "preact/hooks";
import { call, useGet } from "../data/api";
import { plural } from "../format";
import { attempt } from "./Announcements";
import { Confirm } from "./Confirm";
import { CopyButton } from "./CopyButton";
import { Refusal } from "./Notice";

/** The secrets that sign webhooks. They are fetched only when the user asks to see them. */
export function Webhooks() {
  const [shown, setShown] = useState(false);
  const [rotating, setRotating] = useState(false);
  const loaded = useGet<{ secrets: string[] }>(shown ? "/admin/webhooks/secret" : null);
  const secrets = loaded.data?.secrets ?? [];
  return (
    <section class="card" aria-label="Webhooks">
      <header class="card-head">
        <h2>Webhooks</h2>
        <button onClick={() => setShown(!shown)} aria-expanded={shown}>
          {shown ? "Hide the secrets" : "Show the secrets"}
        </button>
        <button onClick={() => setRotating(true)}>Rotate…</button>
      </header>
      {loaded.problem && <Refusal problem={loaded.problem} retry={loaded.reload} />}
      <p class="soft">
        {shown && loaded.data ? `${plural(secrets.length, "secret")} of your tenant, newest first; each signs every webhook.` : "Webhooks are signed with the secrets of your tenant."}
      </p>
      {secrets.map((secret) => (
        <CopyButton text={secret} code />
      ))}
      {rotating && (
        <Confirm
          title="Make a new secret?"
          action="Rotate"
          onClose={() => setRotating(false)}
          onConfirm={() => attempt(() => call("POST", "/admin/webhooks/secret/rotate"), "There is a new secret.").then(loaded.reload)}
        >
          <p>The old secrets sign for one more day: give your receivers the new one before that.</p>
        </Confirm>
      )}
    </section>
  );
}
