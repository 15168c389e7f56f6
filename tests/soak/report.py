"""The verdict of a soak: a line for each series, and whether any of them grew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.soak.samples import Sample
from tests.soak.trend import Finding, Levels, Points, Slope, levels, slope

WARM_UP = 0.25
"""The share of the samples at the beginning that does not count: caches and tables fill up."""

ENOUGH_SECONDS = 600.0
"""A shorter run says nothing about growth; it says that no process ended and nothing is left."""

NOT_BOUNDED = frozenset({"WAL written, MB"})
ACCEPTED = 202


@dataclass(frozen=True)
class Verdict:
    passed: bool
    lines: tuple[str, ...]


def verdict(
    samples: Sequence[Sample],
    *,
    answers: Mapping[int, int],
    left: Mapping[str, int],
    ended: Mapping[str, Sequence[int]],
) -> Verdict:
    steady = samples[int(len(samples) * WARM_UP) :]
    long_enough = steady[-1].at - steady[0].at >= ENOUGH_SECONDS
    found = list(findings(steady, long_enough=long_enough))
    problems = [f"{line}" for line, finding in found if finding is Finding.GROWS]
    problems += [
        f"{n} submits were answered {status}"
        for status, n in sorted(answers.items())
        if status != ACCEPTED
    ]
    problems += [f"{n} rows are left in {table}" for table, n in left.items()]
    problems += [f"{name} ended by itself: exit codes {codes}" for name, codes in ended.items()]
    lines = [
        f"{'series':<34}{'early':>10}{'late':>10}  slope an hour (95 % interval)",
        *(line for line, _ in found),
        *(f"problem: {each}" for each in problems),
        "failed" if problems else "passed",
    ]
    if not long_enough:
        lines.insert(-1, f"less than {ENOUGH_SECONDS:g} s after the warm-up: growth is not judged")
    return Verdict(not problems, tuple(lines))


def findings(samples: Sequence[Sample], *, long_enough: bool) -> Iterator[tuple[str, Finding]]:
    for name in samples[-1].processes:
        alive = [each for each in samples if name in each.processes]
        memory = [(each.at, each.processes[name].memory) for each in alive]
        files = [(each.at, float(each.processes[name].descriptors)) for each in alive]
        yield judged(f"{name} memory, MB", memory, long_enough=long_enough, by_slope=True)
        yield judged(f"{name} descriptors", files, long_enough=long_enough)
    for name in samples[-1].sizes:
        points = [(each.at, each.sizes[name]) for each in samples]
        yield judged(name, points, long_enough=long_enough and name not in NOT_BOUNDED)


def judged(
    name: str, points: Points, *, long_enough: bool, by_slope: bool = False
) -> tuple[str, Finding]:
    """A line, and whether this series grows."""
    level, change = levels(points), slope(points)
    finding = (change if by_slope else level).finding if long_enough else Finding.UNCLEAR
    said = finding if long_enough else ""
    return line(name, level, change, said), finding


def line(name: str, level: Levels, change: Slope, said: str) -> str:
    interval = f"{change.mean:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
    return f"{name:<34}{level.early:>10.1f}{level.late:>10.1f}  {interval}  {said}".rstrip()
