import { useState } from "preact/hooks";
import { call, useGet } from "../data/api";
import type { ApiKey } from "../data/jobs";
import { clock } from "../format";
import { attempt } from "./Announcements";
import { Confirm } from "./Confirm";
import { CopyButton } from "./CopyButton";
import { Dialog } from "./Dialog";
import { Notice, Refusal } from "./Notice";

const ROLES = ["client", "read", "worker", "admin"];

/** API keys: made here, shown once, and revoked. */
export function Keys() {
  const loaded = useGet<{ keys: ApiKey[]; next: string | null }>("/admin/keys?limit=200");
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<ApiKey | null>(null);
  const keys = (loaded.data?.keys ?? []).filter((key) => key.revoked_at === null);
  return (
    <section class="card" aria-label="Keys">
      <header class="card-head">
        <h2>Keys</h2>
        <button onClick={() => setCreating(true)}>New key…</button>
      </header>
      {loaded.problem && <Refusal problem={loaded.problem} retry={loaded.reload} />}
      {loaded.data !== null && keys.length === 0 && <Notice>No key: every program on this machine has full access. The first key ends that.</Notice>}
      {keys.length > 0 && (
        <table class="plain wide">
          <tbody>
            {keys.map((key) => (
              <tr key={key.id}>
                <th scope="row">
                  {key.name || key.id} <span class="soft">{key.role}, {key.tenant}</span>
                </th>
                <td class="soft right">{key.expires_at === null ? `since ${clock(key.created_at)}` : `until ${clock(key.expires_at)}`}</td>
                <td class="right">
                  <button class="quiet danger" aria-label={`revoke ${key.name || key.id}`} onClick={() => setRevoking(key)}>
                    revoke
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {loaded.data?.next && <p class="soft">The first 200 keys; the command line lists all of them.</p>}
      {creating && <NewKey onClose={() => { setCreating(false); loaded.reload(); }} />}
      {revoking && (
        <Confirm
          title={`Revoke ${revoking.name || revoking.id}?`}
          action="Revoke it"
          danger
          onClose={() => setRevoking(null)}
          onConfirm={() => attempt(() => call("DELETE", `/admin/keys/${encodeURIComponent(revoking.id)}`), "The key is revoked.").then(loaded.reload)}
        >
          <p>Its requests are refused in every process within five seconds. A revoked key cannot be brought back.</p>
        </Confirm>
      )}
    </section>
  );
}

function NewKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("client");
  const [tenant, setTenant] = useState("default");
  const [made, setMade] = useState("");
  const create = async (event: Event) => {
    event.preventDefault();
    await attempt(async () => {
      const answer = await call<{ key: string }>("POST", "/admin/keys", { role, tenant, name });
      setMade(answer.key);
    }, "The key is made.");
  };
  if (made !== "") {
    return (
      <Dialog title="The new key" onClose={onClose}>
        <p>It is shown this once. Keep it in a safe place.</p>
        <CopyButton text={made} code />
      </Dialog>
    );
  }
  return (
    <Dialog title="New key" onClose={onClose}>
      <form class="form" onSubmit={(event) => void create(event)}>
        <label>
          Name
          <input value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <div class="form-row">
          <label>
            Role
            <select value={role} onChange={(event) => setRole(event.currentTarget.value)}>
              {ROLES.map((each) => (
                <option>{each}</option>
              ))}
            </select>
          </label>
          <label>
            Tenant
            <input required value={tenant} onInput={(event) => setTenant(event.currentTarget.value)} />
          </label>
        </div>
        <div class="actions">
          <button class="primary" type="submit">
            Make the key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
