"""The HTML report: one file with the figures and a chart of the waits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from fairlane.simulate.report import Report, WaitTimes
from fairlane.simulate.text_report import COLUMNS, by_service, cells, seconds, share

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 72, 24
MIN_LABEL_PIXELS = 20
"""Labels nearer than this to the zero line are left out."""

LONG_SECONDS = 7200.0
COLOURS = ("#7a8699", "#2563eb", "#d97706", "#059669", "#c026d3", "#dc2626")
"""The first colour is for the present settings, the next ones for the alternatives."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --soft: #5b6675; --line: #d8dee6; --back: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa6b6; --line: #333d4b; --back: #12171e; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
p { color: var(--soft); margin: .3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
:is(th, td):nth-child(-n + 2) { text-align: left; }
th { font-weight: 600; color: var(--soft); }
svg { width: 100%; height: auto; display: block; }
polyline { fill: none; stroke-width: 2; }
svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); } .target { stroke: var(--soft); stroke-dasharray: 3 4; }
.name { display: inline-block; margin-right: 1rem; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
  margin-right: .35rem; vertical-align: -1px; }
@media (max-width: 40rem) { svg text { font-size: 18px; } polyline { stroke-width: 3; } }
"""


def page(title: str, subtitle: str, reports: Sequence[tuple[str, Report]]) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p>",
        _legend([name for name, _ in reports]),
        "<h2>Waits over time</h2>",
        "<p>95 of 100 jobs that came then waited no longer. A dashed line is the target.</p>",
    ]
    for tier in _tiers(reports):
        parts.append(f"<h2>{escape(tier)}</h2>")
        parts.append(_chart(tier, reports))
    for name, report in reports:
        parts.append(f"<h2>{escape(name)}</h2>")
        parts.append(f"<p>{escape(_sentence(report))}</p>")
        parts.append(_table([*report.tiers, *by_service(report)]))
    parts.append("</body></html>")
    return "\n".join(parts)


def _tiers(reports: Sequence[tuple[str, Report]]) -> list[str]:
    return list(dict.fromkeys(tier for _, report in reports for tier in report.over_time))


def _legend(names: Sequence[str]) -> str:
    keys = [
        f'<span class="name"><span class="key" style="background:{_colour(n)}"></span>'
        f"{escape(name)}</span>"
        for n, name in enumerate(names)
    ]
    return f"<p>{''.join(keys)}</p>"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


# --- the picture ---------------------------------------------------------------------------------
def _chart(tier: str, reports: Sequence[tuple[str, Report]]) -> str:
    """Waits on a logarithmic scale, because seconds and hours share one chart."""
    values = [
        value
        for _, report in reports
        for value in report.over_time.get(tier, [])
        if value is not None
    ]
    top = max([1.0, *values])
    span = max(report.span for _, report in reports)
    target = next(
        (each.target for _, report in reports for each in report.tiers if each.tier == tier), 0
    )
    inside = "".join(
        [
            *_grid(top, span),
            *([_rule(target, top)] if 0 < target <= top else []),
            *(
                _line(name, report, tier, top, _colour(n))
                for n, (name, report) in enumerate(reports)
            ),
        ]
    )
    label = escape(f"p95 of the waits of {tier} over time", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{inside}</svg>'


def _grid(top: float, span: float) -> Iterator[str]:
    for value in (0.0, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 360_000.0):
        y = _y(value, top)
        if value <= top and (not value or _y(0, top) - y > MIN_LABEL_PIXELS):
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield (
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                f"{seconds(value) if value else '0'}</text>"
            )
    for quarter in range(5):
        x = LEFT + (WIDTH - LEFT) * quarter / 4
        anchor = ("start", "middle", "middle", "middle", "end")[quarter]
        yield (
            f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
            f"{_hours(span * quarter / 4, span) if quarter else '0'}</text>"
        )


def _hours(at: float, span: float) -> str:
    """All times of a long span in hours."""
    return seconds(at) if span < LONG_SECONDS else f"{at / 3600:.1f} h"


def _rule(target: float, top: float) -> str:
    y = _y(target, top)
    return f'<line class="target" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _line(name: str, report: Report, tier: str, top: float, colour: str) -> str:
    """The line has gaps where no job arrived."""
    values = report.over_time.get(tier, [])
    pieces: list[list[str]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            pieces.append([])
            continue
        x = LEFT + (WIDTH - LEFT) * (n + 0.5) / len(values)
        pieces[-1].append(f"{x:.1f},{_y(value, top):.1f}")
    drawn = "".join(
        f'<polyline stroke="{colour}" stroke-linecap="round" '
        f'points="{" ".join(piece if len(piece) > 1 else piece * 2)}"/>'
        for piece in pieces
        if piece
    )
    return f"<g><title>{escape(name)}</title>{drawn}</g>"


def _y(value: float, top: float) -> float:
    room = HEIGHT - BOTTOM - 10
    return HEIGHT - BOTTOM - room * math.log1p(value) / math.log1p(top)


# --- the figures ---------------------------------------------------------------------------------
def _sentence(report: Report) -> str:
    said = [f"{report.served:,} of {report.jobs:,} jobs served"]
    said += [f"{number:,} refused ({code})" for code, number in sorted(report.refused.items())]
    if report.gave_up:
        said.append(f"{report.gave_up:,} gave up waiting")
    if report.within is not None:
        said.append(f"{share(report.within)} within their target")
    if report.utilisation is not None:
        said.append(f"{report.places:,} places {share(report.utilisation)} used")
    if report.loads:
        said.append(f"{report.loads:,} model loads, {share(report.load_share)} of the time")
    if report.eta is not None:
        said.append(
            f"{share(report.eta.covered)} started by the p90 they were told, "
            f"{share(report.eta.within_two)} within twice or half the p50"
        )
    return " · ".join(said)


def _table(waits: Sequence[WaitTimes]) -> str:
    rows = "".join(_row("td", [each.tier, each.service or "all", *cells(each)]) for each in waits)
    head = _row("th", ["tier", "service", *COLUMNS])
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _row(tag: str, values: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(value)}</{tag}>' for value in values)}</tr>"
