"""The report of a history check: violations of promises, and figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

MAX_SHOWN = 20
"""Violations of one promise that the text shows."""


class Violation(NamedTuple):
    """A promise, for example I7, and what broke it. `counter` names the figure it counts in."""

    promise: str
    text: str
    counter: str = ""


@dataclass(frozen=True)
class HistoryReport:
    violations: tuple[Violation, ...]
    acked: int = 0
    faults: int = 0
    seed: int | None = None
    recoveries: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def line(self) -> str:
        """The result in one line. Every safety counter must be 0."""
        found = Counter(each.counter for each in self.violations)
        p99 = percentile(self.recoveries, 0.99)
        recovery = "-" if p99 is None else f"{p99:.1f} s"
        return (
            f"acked {self.acked:,} · lost {found['lost']} · "
            f"stale accepted {found['stale accepted']} · over limit {found['over limit']} · "
            f"double charged {found['double charged']} · recovery p99 {recovery} · "
            f"faults {self.faults} · seed {self.seed}"
        )

    @property
    def text(self) -> str:
        """The violations, the notes and, last, the line."""
        lines: list[str] = []
        shown = Counter[str]()
        for each in self.violations:
            shown[each.promise] += 1
            if shown[each.promise] <= MAX_SHOWN:
                lines.append(f"{each.promise}: {each.text}")
        for promise, n in shown.items():
            if n > MAX_SHOWN:
                lines.append(f"{promise}: and {n - MAX_SHOWN} more")
        return "\n".join([*lines, *self.notes, self.line])


def percentile(values: tuple[float, ...], share: float) -> float | None:
    """The smallest value that is at least as large as this share of all."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, rank - 1)]
