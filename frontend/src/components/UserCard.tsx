import { useState } from "preact/hooks";
import { call, useGet } from "../data/api";
import { frame } from "../data/live";
import { count } from "../format";
import { jobsLink } from "../router";
import { attempt } from "./Announcements";
import { Confirm } from "./Confirm";
import { Refusal } from "./Notice";

interface User {
  user_id: string;
  priority: string | null;
  balance: number;
}

/** The tier and the credits of one user. */
export function UserCard() {
  const [text, setText] = useState("");
  const [wanted, setWanted] = useState("");
  const [tier, setTier] = useState<string | null>(null);
  const [amount, setAmount] = useState<number | null>(null);
  const path = `/admin/users/${encodeURIComponent(wanted)}`;
  const loaded = useGet<User>(wanted === "" ? null : path);
  const user = loaded.data;
  return (
    <section class="card" aria-label="Users">
      <h2 class="card-title">Users</h2>
      <form
        class="inline-form"
        onSubmit={(event) => {
          event.preventDefault();
          setWanted(text.trim());
        }}
      >
        <input aria-label="User" placeholder="user" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit">Look up</button>
      </form>
      {loaded.problem && <Refusal problem={loaded.problem} retry={loaded.reload} />}
      {user && (
        <div class="stack">
          <p>
            <a href={jobsLink(`user:${user.user_id}`)}>
              <b>{user.user_id}</b>
            </a>{" "}
            {user.priority ?? "no stored tier"}, {count(user.balance)} credits
          </p>
          <div class="inline-form">
            <select aria-label="New tier" value={user.priority ?? ""} onChange={(event) => setTier(event.currentTarget.value)}>
              <option value="" disabled>
                set a tier
              </option>
              {(frame.value?.tiers ?? []).map((each) => (
                <option>{each.name}</option>
              ))}
            </select>
            <button onClick={() => setAmount(10)}>Give credits…</button>
          </div>
        </div>
      )}
      {user && tier && (
        <Confirm
          title={`Set ${user.user_id} to ${tier}?`}
          action="Set the tier"
          onClose={() => setTier(null)}
          onConfirm={() => attempt(() => call("PUT", path, { priority: tier }), `${user.user_id} is ${tier} from the next job on.`).then(loaded.reload)}
        >
          <p>It counts for future jobs. Jobs in line keep the tier they have.</p>
        </Confirm>
      )}
      {user && amount !== null && (
        <Confirm
          title={`Give credits to ${user.user_id}?`}
          action={`Give ${count(amount)}`}
          onClose={() => setAmount(null)}
          onConfirm={() =>
            attempt(
              () => call("POST", `${path}/credits`, { amount, operation_key: `dashboard-${Date.now()}-${Math.random().toString(36).slice(2)}`, note: "given on the dashboard" }),
              `${user.user_id} has ${count(user.balance + amount)} credits.`,
            ).then(loaded.reload)
          }
        >
          <label class="form">
            Credits
            <input type="number" value={amount} onInput={(event) => setAmount(Number(event.currentTarget.value))} />
          </label>
          <p class="soft">A negative number takes credits away.</p>
        </Confirm>
      )}
    </section>
  );
}
