"""The demo's display: tables in a terminal, lines otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlane.demo.traffic import PEOPLE, YOU, Scene

Status = dict[str, Any]
"""The response of `/queue/status`."""


class Lines:
    """Prints one line from time to time, for a pipe or a file."""

    every = 2.0

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, status: Status, scene: Scene, seconds: float) -> None:
        self._console.print(line(status, scene, seconds), highlight=False)


class Tables:
    """Tables that are updated in place."""

    every = 0.5

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, status: Status, scene: Scene, _: float) -> None:
        self._live.update(tables(status, scene), refresh=True)


@contextmanager
def shown(console: Console) -> Iterator[Lines | Tables]:
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Tables(live)


def tables(status: Status, scene: Scene) -> Group:
    return Group(_services(status, scene), _people(scene), *_waiting(scene), _note(scene))


def line(status: Status, scene: Scene, seconds: float) -> str:
    services = status.get("services", {}).values()
    waiting, running = (sum(each[name] for each in services) for name in ("waiting", "running"))
    waits = ", ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in waits_of_tiers(scene))
    return (
        f"{seconds:5.0f} s  {len(scene.accepted)} accepted, {waiting} waiting, {running} running, "
        f"{len(scene.over)} done; waited s (p50/p95): {waits}; {scene.broken} above a limit"
        + (f"; {scene.down} is away" if scene.down else "")
        + (f"; waiting for {scene.waiting_for}" if scene.waiting_for else "")
    )


def waits_of_tiers(scene: Scene) -> list[tuple[str, str, str]]:
    """Seconds that steps of each tier wait for a slot: p50 and p95."""
    tiers = dict.fromkeys(PEOPLE.values())
    return [(tier, *_ranks(scene, [u for u in PEOPLE if PEOPLE[u] == tier])) for tier in tiers]


def _ranks(scene: Scene, users: list[str]) -> tuple[str, str]:
    ranked = sorted(wait for user in users for wait in scene.waits[user])
    if not ranked:
        return "–", "–"
    return f"{ranked[len(ranked) // 2]:.2f}", f"{ranked[int(len(ranked) * 0.95)]:.2f}"


def _services(status: Status, scene: Scene) -> Table:
    table = _table(("service", "slots", "health"), ("most at once", "above limit", "waiting"))
    for service in scene.services:
        seen = status.get("services", {}).get(service.name)
        if seen is None:
            continue
        bar = "■" * seen["running"] + "□" * (service.limit - seen["running"])
        table.add_row(
            service.name,
            f"{bar} {seen['running']}/{service.limit}",
            "failing, probing" if seen["health"] == "failing" else seen["health"],
            f"{service.most}/{service.limit}",
            str(service.refused),
            str(seen["waiting"] + seen["retry"]),
        )
    return table


def _people(scene: Scene) -> Table:
    table = _table(("user", "tier"), ("submitted", "running", "done", "wait p50 s", "p95 s"))
    for user, tier in PEOPLE.items():
        counts = (scene.submitted[user], scene.running[user], scene.done[user])
        table.add_row(user, tier, *map(str, counts), *_ranks(scene, [user]))
    if YOU in scene.running:
        table.add_row(YOU, "", "", str(scene.running[YOU]), "", "", "", style="bold")
    return table


def _table(left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _waiting(scene: Scene) -> list[Text]:
    return [Text(f"Waiting for {scene.waiting_for}.", "bold")] if scene.waiting_for else []


def _note(scene: Scene) -> Text:
    down = f" {scene.down} is away: see it closed, probed and opened." if scene.down else ""
    return Text(
        "Look at: no service has more calls than slots; high waits least; bulk's floods do not "
        f"hold up linus.{down}",
        style="dim",
    )
