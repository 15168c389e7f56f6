"""The view: draws one frame as text for a terminal of this size. It is a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Json = Any

MAX_ALERTS = 3
NEXT_ROWS = 5
CELLS_WIDTH = 16
TIER_COLOURS = ("green", "cyan", "magenta", "yellow", "blue")
MARKS = {"wrong": ("✗", "bold red"), "warning": ("!", "yellow"), "unknown": ("?", "magenta")}
HELP = "q quit   p pause   ↑ ↓ tab  service"


class ViewState(NamedTuple):
    """What the user has chosen: the selected service, and whether the view stands still."""

    selected: str | None = None
    paused: bool = False
    problem: str = ""


def draw(frame: Mapping[str, Json], state: ViewState, width: int, height: int) -> RenderableType:
    """The frame in at most `height` lines of `width` characters."""
    names = list(frame["services"])
    selected = state.selected if state.selected in frame["services"] else _busiest(frame)
    alerts = _alerts(frame, width)
    room = height - 2 - len(alerts) - 1 - (NEXT_ROWS + 2) - 1
    parts: list[RenderableType] = [
        _header(frame, state, width),
        _tiers(frame, width),
        *alerts,
        _services(frame, _window(names, selected, max(1, room)), selected, width),
    ]
    if selected is not None:
        parts += ["", *_next(frame, selected, width)]
    parts.append(Text(_cut(HELP, width), style="dim"))
    return Group(*parts)


def services_of(frame: Mapping[str, Json] | None) -> list[str]:
    return [] if frame is None else list(frame["services"])


def moved(frame: Mapping[str, Json] | None, state: ViewState, by: int) -> ViewState:
    """The state after another service was selected."""
    names = services_of(frame)
    if frame is None or not names:
        return state
    now = state.selected if state.selected in names else _busiest(frame)
    place = names.index(now) if now is not None else 0
    return state._replace(selected=names[(place + by) % len(names)])


def _busiest(frame: Mapping[str, Json]) -> str | None:
    """The service with most waiting jobs, or the first."""
    services = frame["services"]
    return max(services, key=lambda name: _waiting(services[name]), default=None)


def _waiting(service: Mapping[str, Json]) -> int:
    return sum(int(tier["waiting"]) for tier in service["tiers"].values())


def _window(names: Sequence[str], selected: str | None, room: int) -> Sequence[str]:
    """The part of the services that fits, with the selected one in it."""
    if len(names) <= room or selected is None:
        return names[:room]
    first = min(max(0, names.index(selected) - room // 2), len(names) - room)
    return names[first : first + room]


# --- lines ---------------------------------------------------------------------------------------
def _header(frame: Mapping[str, Json], state: ViewState, width: int) -> Text:
    totals = frame["totals"]
    at = datetime.fromtimestamp(frame["at"] / 1000, UTC).strftime("%H:%M:%S")
    parts = [
        f"Fairlane {frame['version']}  {at}Z",
        f"slots {totals['slots_used']}/{totals['slots']}",
        f"{totals['waiting']:,} wait",
        f"{totals['running']:,} run",
        f"{totals['started_per_second']:g}/s",
    ]
    if totals["dead"]:
        parts.append(f"{totals['dead']:,} dead")
    if frame["simulated"]:
        parts.append(f"simulated time × {frame['simulated']['speed']:g}")
    text = Text(_cut("  ".join(parts), width), style="bold")
    note = " PAUSED " if state.paused else f" {state.problem} " if state.problem else ""
    if note:
        text.truncate(max(0, width - len(note)))
        text.append(note, style="reverse yellow" if state.paused else "reverse red")
    return text


def _tiers(frame: Mapping[str, Json], width: int) -> Text:
    text = Text()
    for number, tier in enumerate(frame["tiers"]):
        share, target = tier["share_in_target"], tier["target_seconds"]
        told = f"{100 * share:.0f} % in {_lasts(frame, target)}" if share is not None else "–"
        text.append(f"{tier['name']} ", style=TIER_COLOURS[number % len(TIER_COLOURS)])
        text.append(f"{told}   ")
    workers = Counter(each["state"] for each in frame["workers"].values())
    text.append("workers ", style="dim")
    text.append(", ".join(f"{n} {state}" for state, n in sorted(workers.items())) or "none")
    text.truncate(width, overflow="ellipsis")
    return text


def _alerts(frame: Mapping[str, Json], width: int) -> list[Text]:
    found = sorted(frame["alerts"], key=lambda each: list(MARKS).index(each["verdict"]))
    lines = []
    for each in found[:MAX_ALERTS]:
        mark, style = MARKS[each["verdict"]]
        lines.append(Text(_cut(f"{mark} {each['subject']}: {each['text']}", width), style=style))
    if len(found) > MAX_ALERTS:
        lines[-1] = Text(
            _cut(f"… and {len(found) - MAX_ALERTS + 1} more: fairlane doctor", width),
            style="yellow",
        )
    return lines


def _services(
    frame: Mapping[str, Json], names: Sequence[str], selected: str | None, width: int
) -> Table:
    tiers = [tier["name"] for tier in frame["tiers"]]
    table = Table(box=None, pad_edge=False, width=width, header_style="dim", collapse_padding=True)
    table.add_column("service", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("slots", width=CELLS_WIDTH, no_wrap=True)
    table.add_column("run", justify="right", no_wrap=True)
    table.add_column(f"wait {'/'.join(letters(tiers))}", justify="right", no_wrap=True)
    table.add_column("p95", justify="right", no_wrap=True)
    table.add_column("start/s", justify="right", no_wrap=True)
    for name in names:
        service = frame["services"][name]
        style = "reverse" if name == selected else ""
        table.add_row(
            Text(_name(name, service), style=style),
            _cells(service, tiers),
            f"{service['running']}/{service['limit'] or '–'}",
            "/".join(str(service["tiers"][tier]["waiting"]) for tier in tiers),
            _worst_p95(frame, service),
            f"{service['started_per_second']:g}",
        )
    return table


def _name(name: str, service: Mapping[str, Json]) -> str:
    if service["paused"]:
        return f"{_printable(name)} (paused)"
    down = [region for region, each in service["health"].items() if each["state"] != "closed"]
    if down:
        return f"{_printable(name)} (no answer{' ' + ','.join(down) if any(down) else ''})"
    return _printable(name)


def _cells(service: Mapping[str, Json], tiers: Sequence[str]) -> Text:
    """One letter a slot: the tier of its job, `·` if it is free, `x` if it is held."""
    text = Text()
    slots = service["slots"]
    if not slots and service["limit"]:
        return Text(_bar(service["running"], service["limit"]))
    for slot in slots[: CELLS_WIDTH - 1 if len(slots) > CELLS_WIDTH else CELLS_WIDTH]:
        if slot["state"] == "free":
            text.append("·", style="dim")
        elif slot["state"] == "held":
            text.append("x", style="bold red")
        else:
            tier = slot["tier"] or "?"
            rank = tiers.index(tier) if tier in tiers else 0
            text.append(
                letters(tiers)[rank][0], style=f"reverse {TIER_COLOURS[rank % len(TIER_COLOURS)]}"
            )
    if len(slots) > CELLS_WIDTH:
        text.append("…", style="dim")
    return text


def letters(tiers: Sequence[str]) -> list[str]:
    """A short name for each tier: its first letter, or two if tiers begin alike."""
    first = [tier[:1].upper() for tier in tiers]
    return first if len(set(first)) == len(first) else [tier[:2].capitalize() for tier in tiers]


def _bar(running: int, limit: int) -> str:
    full = min(CELLS_WIDTH, round(CELLS_WIDTH * running / limit))
    return "█" * full + "·" * (CELLS_WIDTH - full)


def _worst_p95(frame: Mapping[str, Json], service: Mapping[str, Json]) -> str:
    known = [each["p95"] for each in service["tiers"].values() if each["p95"] is not None]
    return _lasts(frame, max(known)) if known else "–"


def _next(frame: Mapping[str, Json], name: str, width: int) -> list[RenderableType]:
    """The next five jobs of the selected service, and why each is there."""
    jobs = frame["services"][name]["next"][:NEXT_ROWS]
    title = f"next at {_printable(name)}" if jobs else f"nothing waits at {_printable(name)}"
    table = Table(box=None, pad_edge=False, width=width, show_header=False)
    table.add_column(width=2, justify="right")
    table.add_column(width=14, no_wrap=True, overflow="ellipsis")
    table.add_column(width=12, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(width=14, justify="right", no_wrap=True)
    for number, job in enumerate(jobs, 1):
        promoted = job["level"] and job["level"] != job["tier"]
        tier = f"{job['tier']}→{job['level']}" if promoted else str(job["tier"])
        badges = "".join(f"[{badge}] " for badge in job["badges"])
        table.add_row(
            str(number),
            Text(tier),
            Text(_printable(job["user"] or "–")),
            Text(_printable(f"{badges}{job['why']}")),
            _range(frame, job["eta_p50"], job["eta_p90"]),
        )
    return [Text(title, style="bold"), table]


def _range(frame: Mapping[str, Json], p50: float | None, p90: float | None) -> str:
    if p50 is None or p90 is None:
        return "–"
    low, high = _lasts(frame, p50), _lasts(frame, p90)
    return low if low == high else f"{low}–{high}"


def _lasts(frame: Mapping[str, Json], seconds: float | None) -> str:
    """A duration. In a simulation it is the simulated one."""
    if seconds is None:
        return "–"
    seconds *= frame["simulated"]["speed"] if frame["simulated"] else 1
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"


def _cut(text: str, width: int) -> str:
    text = _printable(text)
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _printable(text: str) -> str:
    """The text with control characters escaped, so that the terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
