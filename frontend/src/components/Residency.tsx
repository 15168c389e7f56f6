import { useEffect, useRef, useState } from "preact/hooks";
import type { Residence } from "../data/frame";
import { clock, count, duration, LOOK_BACK_SECONDS } from "../format";
import { colour, colours } from "../theme";
import { rank } from "../tiers";
import { Figure } from "./Figure";

const WINDOW_MS = LOOK_BACK_SECONDS * 1000;
const ROW_PX = 18;
const ROW_GAP_PX = 4;
const AXIS_PX = 16;
const LABEL_MIN_PX = 34;
const MAX_TABLE_ROWS = 100;

/** Which job, model and tier each slot held in the last 15 minutes. Colour is the tier. */
export function Residency({ spans, now }: { spans: Residence[]; now: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [by, setBy] = useState<"model" | "user">("model");
  const theme = colours.value;
  const slots = [...new Set(spans.map(slotOf))].sort(natural);
  const height = slots.length * (ROW_PX + ROW_GAP_PX) + AXIS_PX;
  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const paint = () => draw(element, spans, slots, by, now, height);
    paint();
    const resized = new ResizeObserver(paint);
    resized.observe(element);
    return () => resized.disconnect();
  }, [spans, by, now, theme, height]);
  const models = [...new Set(spans.map((span) => span.model ?? "").filter((model) => model !== ""))];
  return (
    <Figure
      title={`Slots, last ${duration(LOOK_BACK_SECONDS)}`}
      aside={
        <span class="choice" role="group" aria-label="Label by">
          {(["model", "user"] as const).map((each) => (
            <button class="quiet" aria-pressed={by === each} onClick={() => setBy(each)}>
              {each}
            </button>
          ))}
        </span>
      }
      columns={["slot", "from", "for", "user", "tier", "model"]}
      rows={spans
        .toSorted((a, b) => b.from - a.from)
        .slice(0, MAX_TABLE_ROWS)
        .map((span) => [
          slotOf(span),
          clock(span.from),
          duration(((span.to ?? now) - span.from) / 1000),
          span.user ?? "–",
          span.tier ?? "–",
          span.model ?? "–",
        ])}
    >
      {spans.length === 0 ? (
        <p class="soft">Nothing has run in this time.</p>
      ) : (
        <div class="residency">
          <ol class="residency-slots">
            {slots.map((slot) => (
              <li>{slot}</li>
            ))}
          </ol>
          <canvas ref={canvas} class="residency-canvas" style={{ "--height": `${height}px` }} />
        </div>
      )}
      {models.length > 0 && by === "model" && <p class="soft small">{count(models.length)} {models.length === 1 ? "model" : "models"}: {models.slice(0, 8).join(", ")}</p>}
    </Figure>
  );
}

const slotOf = (span: Residence): string => (span.region ? `${span.region} ${span.slot + 1}` : String(span.slot + 1));

const natural = (a: string, b: string): number => a.localeCompare(b, "en", { numeric: true });

function draw(canvas: HTMLCanvasElement, spans: Residence[], slots: string[], by: "model" | "user", now: number, height: number): void {
  const width = canvas.clientWidth;
  const context = canvas.getContext("2d");
  if (context === null || width === 0) return;
  const ratio = devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  context.scale(ratio, ratio);
  const rows = new Map(slots.map((slot, place) => [slot, place * (ROW_PX + ROW_GAP_PX)]));
  const x = (time: number) => width * Math.max(0, 1 - (now - time) / WINDOW_MS);
  context.fillStyle = colour("--track");
  for (const top of rows.values()) context.fillRect(0, top, width, ROW_PX);
  const tiers = [0, 1, 2, 3, 4, 5].map((place) => colour(`--tier-${place}`));
  const [grey, ink, gap] = [colour("--faint"), colour("--on-tier"), colour("--card")];
  context.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  context.textBaseline = "middle";
  for (const span of spans) {
    const top = rows.get(slotOf(span)) ?? 0;
    const left = x(span.from);
    const right = Math.max(left + 1, x(span.to ?? now));
    context.fillStyle = tiers[rank(span.tier)] ?? grey;
    context.fillRect(left, top, right - left, ROW_PX);
    context.fillStyle = gap;
    if (right - left > 3) context.fillRect(right - 1, top, 1, ROW_PX);
    const label = (by === "model" ? span.model : span.user) ?? "";
    if (right - left > LABEL_MIN_PX && label !== "") {
      context.save();
      context.beginPath();
      context.rect(left, top, right - left - 4, ROW_PX);
      context.clip();
      context.fillStyle = ink;
      context.fillText(label, left + 5, top + ROW_PX / 2 + 1);
      context.restore();
    }
  }
  context.fillStyle = colour("--soft");
  context.textBaseline = "bottom";
  for (const minutes of [15, 10, 5, 0]) {
    context.textAlign = minutes === 15 ? "left" : minutes === 0 ? "right" : "center";
    context.fillText(minutes === 0 ? "now" : `${duration(minutes * 60)} ago`, x(now - minutes * 60_000), height);
  }
}
