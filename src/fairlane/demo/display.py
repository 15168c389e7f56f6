"""The picture of the gateway demo: services, users and their waits."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fairlane.demo.demo import Status
from fairlane.demo.screen import ranks, table, wrapped
from fairlane.demo.traffic import PEOPLE, YOU, Scene


def tables(status: Status, scene: Scene) -> Group:
    return Group(_services(status, scene), _people(scene), _note(scene))


def line(status: Status, scene: Scene, seconds: float) -> str:
    services = status.get("services", {}).values()
    waiting, running = (sum(each[name] for each in services) for name in ("waiting", "running"))
    waits = ", ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in waits_of_tiers(scene))
    return (
        f"{seconds:5.0f} s  {len(scene.accepted)} accepted, {waiting} waiting, {running} running, "
        f"{len(scene.over)} done; waited s (p50/p95): {waits}; {scene.broken} above a limit"
        + (f"; {scene.down} is away" if scene.down else "")
    )


def waits_of_tiers(scene: Scene) -> list[tuple[str, str, str]]:
    """Seconds that steps of each tier wait for a slot: p50 and p95."""
    tiers = dict.fromkeys(PEOPLE.values())
    return [(tier, *_ranks(scene, [u for u in PEOPLE if PEOPLE[u] == tier])) for tier in tiers]


def _ranks(scene: Scene, users: list[str]) -> tuple[str, str]:
    return ranks([wait for user in users for wait in scene.waits[user]])


def _services(status: Status, scene: Scene) -> Table:
    found = table(("service", "slots", "health"), ("most at once", "above limit", "waiting"))
    for service in scene.services:
        seen = status.get("services", {}).get(service.name)
        if seen is None:
            continue
        bar = "■" * seen["running"] + "□" * (service.limit - seen["running"])
        found.add_row(
            service.name,
            f"{bar} {seen['running']}/{service.limit}",
            "failing, probing" if seen["health"] == "failing" else seen["health"],
            f"{service.most}/{service.limit}",
            str(service.refused),
            str(seen["waiting"] + seen["retry"]),
        )
    return found


def _people(scene: Scene) -> Table:
    found = table(("user", "tier"), ("submitted", "running", "done", "wait p50 s", "p95 s"))
    for user, tier in PEOPLE.items():
        counts = (scene.submitted[user], scene.running[user], scene.done[user])
        found.add_row(user, tier, *map(str, counts), *_ranks(scene, [user]))
    if YOU in scene.running:
        found.add_row(YOU, "", "", str(scene.running[YOU]), "", "", "", style="bold")
    return found


def _note(scene: Scene) -> Text:
    down = f" {scene.down} is away: see it closed, probed and opened." if scene.down else ""
    return wrapped(
        "Look at: no service has more calls than slots; high waits least; bulk's floods do not "
        f"hold up linus.{down}",
        "dim",
    )
