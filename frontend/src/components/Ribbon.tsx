import { useRef, useState } from "preact/hooks";
import type { NextJob } from "../data/frame";
import { count, range } from "../format";
import { jobLink, serviceLink } from "../router";
import { tierClass } from "../tiers";
import { TierDot } from "./TierDot";

interface Props {
  service: string;
  next: NextJob[];
  /** How many wait, including those in `next`. */
  waiting: number;
  shown?: number;
  title?: string;
}

/** Who is next and why, in the order of service. It stands still while the pointer or the focus is
 *  on it, so that a click hits what the user saw. */
export function Ribbon({ service, next, waiting, shown = 5, title = "next" }: Props) {
  const [still, setStill] = useState(false);
  const [all, setAll] = useState(false);
  const seen = useRef(next);
  if (!still) seen.current = next;
  const rows = all ? seen.current : seen.current.slice(0, shown);
  if (rows.length === 0) return <p class="ribbon-empty soft">nothing waits</p>;
  const known = seen.current.length - rows.length;
  const more = Math.max(waiting - rows.length, known);
  return (
    <div class="ribbon-box">
    <p class="ribbon-head" aria-hidden="true">
      <span>{title}</span>
      <span class="why-head">why</span>
      <span>starts in</span>
    </p>
    <ol
      class="ribbon"
      aria-label={`Next for ${service}`}
      onPointerEnter={() => setStill(true)}
      onPointerLeave={() => setStill(false)}
      onFocusIn={() => setStill(true)}
      onFocusOut={() => setStill(false)}
    >
      {rows.map((row, place) => (
        <li key={place}>
          <Row place={place + 1} row={row} />
        </li>
      ))}
    </ol>
    {known > 0 ? (
      <button class="quiet more" onClick={() => setAll(true)}>
        {count(more)} more waiting
      </button>
    ) : (
      more > 0 && (
        <a class="more soft" href={serviceLink(service)}>
          {count(more)} more waiting
        </a>
      )
    )}
    </div>
  );
}

function Row({ place, row }: { place: number; row: NextJob }) {
  const content = (
    <>
      <span class="place">{place}</span>
      <TierDot tier={row.tier} />
      <span class="who">
        <b>{row.user ?? (row.job === null ? "another tenant" : "no user")}</b>
        <span class="visually-hidden"> {row.tier} </span>
        {row.badges.map((badge) => (
          <span class={`badge ${tierClass(row.tier)}`}>{badge}</span>
        ))}
      </span>
      <span class="why">{row.why}</span>
      <span class="when">
        <span class="visually-hidden">starts in </span>
        {range(row.eta_p50, row.eta_p90)}
      </span>
    </>
  );
  if (row.job === null) return <span class="ribbon-row">{content}</span>;
  return (
    <a class="ribbon-row" href={jobLink(row.job)}>
      {content}
    </a>
  );
}
