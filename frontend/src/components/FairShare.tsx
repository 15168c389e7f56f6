import type { Share } from "../data/frame";
import { count, duration, LOOK_BACK_SECONDS } from "../format";
import { Figure } from "./Figure";

/** What each user was served, against what was due. The tick is the share that was due. */
export function FairShare({ shares }: { shares: Share[] }) {
  const most = Math.max(0.001, ...shares.flatMap((share) => [share.served_seconds, share.due_seconds]));
  return (
    <Figure
      title={`Fair share, last ${duration(LOOK_BACK_SECONDS)}`}
      columns={["user", "served", "due", "waiting"]}
      rows={shares.map((share) => [share.user ?? "another tenant", duration(share.served_seconds), duration(share.due_seconds), share.waiting])}
    >
      {shares.length === 0 && <p class="soft">No user has been served yet.</p>}
      <ul class="shares">
        {shares.map((share) => (
          <li>
            <span class="share-user">{share.user ?? "another tenant"}</span>
            <span class="share-track">
              <i style={{ "--share": String(share.served_seconds / most) }} />
              <u style={{ "--from": String(share.due_seconds / most) }} />
            </span>
            <span class="share-figure">
              {duration(share.served_seconds)} <span class="soft">of {duration(share.due_seconds)}</span>
            </span>
            <span class="soft share-waiting">{count(share.waiting)} waiting</span>
          </li>
        ))}
      </ul>
    </Figure>
  );
}
