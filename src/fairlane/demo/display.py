"""Pictures of simulated services, and of users and their waits."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from fairlane.demo.demo import Status
from fairlane.demo.screen import ranks, table, wrapped
from fairlane.demo.traffic import PEOPLE, YOU, Scene


def line(status: Status, scene: Scene, seconds: float, broken: int) -> str:
    services = status.get("services", {}).values()
    waiting, running = (sum(each[name] for each in services) for name in ("waiting", "running"))
    waits = ", ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in waits_of_tiers(scene))
    return (
        f"{seconds:5.0f} s  {len(scene.accepted)} accepted, {waiting} waiting, {running} running, "
        f"{len(scene.over)} done; waited s (p50/p95): {waits}; {broken} above a limit"
        + (f"; {scene.down} is away" if scene.down else "")
    )


def waits_of_tiers(scene: Scene) -> list[tuple[str, str, str]]:
    """Seconds that steps of each tier wait for a slot: p50 and p95."""
    tiers = dict.fromkeys(PEOPLE.values())
    return [(tier, *_ranks(scene, [u for u in PEOPLE if PEOPLE[u] == tier])) for tier in tiers]


def _ranks(scene: Scene, users: list[str]) -> tuple[str, str]:
    return ranks([wait for user in users for wait in scene.waits[user]])


def services(scene: Scene, status: Status, what: str = "service") -> Table:
    """The simulated services, with what the API tells of each."""
    found = table((what, "slots", "health"), ("most at once", "above limit", "waiting"))
    for service in scene.services:
        seen = status.get(service.name)
        if seen is None:
            continue
        found.add_row(
            service.name,
            slots(seen["running"], service.limit),
            "failing, probing" if seen["health"] == "failing" else seen["health"],
            f"{service.most}/{service.limit}",
            str(service.refused),
            str(seen["waiting"] + seen["retry"]),
        )
    if provider := scene.provider:
        bar, most = slots(provider.running, provider.limit), f"{provider.most}/{provider.limit}"
        found.add_row(f"{provider.name} (all)", bar, "", most, str(provider.refused), "")
    return found


def slots(taken: int, limit: int) -> str:
    return f"{'■' * taken}{'□' * (limit - taken)} {taken}/{limit}"


def people(scene: Scene, homes: Mapping[str, str] | None = None) -> Table:
    """The users. With `homes`, where their jobs may run."""
    left = ("user", "tier") if homes is None else ("user", "tier", "regions")
    found = table(left, ("submitted", "running", "done", "wait p50 s", "p95 s"))
    for user, tier in PEOPLE.items():
        where = () if homes is None else (homes.get(user, "any"),)
        counts = (scene.submitted[user], scene.running[user], scene.done[user])
        found.add_row(user, tier, *where, *map(str, counts), *_ranks(scene, [user]))
    if YOU in scene.running:
        nothing = [""] * (len(left) - 1)
        found.add_row(YOU, *nothing, "", str(scene.running[YOU]), "", "", "", style="bold")
    return found


def note(text: str) -> Text:
    return wrapped(f"Look at: {text}", "dim")


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
