const WIDTH = 100;
const HEIGHT = 34;
const HEADROOM = 1.08;
const FAR = 2.5;

interface Props {
  values: (number | null)[];
  target: number | null;
  wrong: boolean;
}

/** The p95 wait of the last 15 minutes, with the target as a dashed line: at the upper edge if it is
 *  far away. It stretches to its box. */
export function Sparkline({ values, target, wrong }: Props) {
  const longest = Math.max(0, ...values.map((value) => value ?? 0));
  const highest = Math.max(longest, Math.min(target ?? 0, longest * FAR)) * HEADROOM || 1;
  const y = (value: number) => (HEIGHT * Math.max(0, 1 - value / highest)).toFixed(1);
  const points = values.flatMap((value, place) => (value === null ? [] : [{ x: x(place, values.length), y: y(value) }]));
  const line = points.map((point) => `${point.x},${point.y}`).join(" ");
  const first = points[0];
  const last = points.at(-1);
  return (
    <svg class={wrong ? "sparkline late" : "sparkline"} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      {first && last && <path class="area" d={`M${first.x},${HEIGHT} L${line.replaceAll(" ", " L")} L${last.x},${HEIGHT} Z`} />}
      <polyline class="line" points={line} />
      {target !== null && <line class="target" x1={0} x2={WIDTH} y1={y(target)} y2={y(target)} />}
    </svg>
  );
}

const x = (place: number, length: number): string => ((WIDTH * place) / Math.max(1, length - 1)).toFixed(2);
