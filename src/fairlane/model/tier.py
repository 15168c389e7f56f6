"""Tiers: named priority classes of users. Rank 0 is served first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlane.errors import InvalidInput, UnknownName
from fairlane.model.setting_bounds import MAX_COUNT, MAX_SECONDS, demand


@dataclass(frozen=True, slots=True)
class Tier:
    """Times are seconds. 0 means no limit. `target` is the wait that a job should not exceed; it is
    reported and decides nothing (0 = none)."""

    name: str
    promote: dict[str, float] = field(default_factory=dict)
    max_retries: int = 3
    timeout: float = 600
    pending: int = 0
    per_hour: int = 0
    max_duration: float = 0
    max_running_per_user: int = 0
    target: float = 0

    def __post_init__(self) -> None:
        whose = f'tier "{self.name}"'
        demand(whose, MAX_COUNT, max_retries=self.max_retries, pending=self.pending)
        demand(
            whose, MAX_COUNT, per_hour=self.per_hour, max_running_per_user=self.max_running_per_user
        )
        demand(whose, MAX_SECONDS, timeout=self.timeout, max_duration=self.max_duration)
        demand(whose, MAX_SECONDS, target=self.target)
        for after in self.promote.values():
            demand(whose, MAX_SECONDS, promote=after)


class Tiers:
    """The tiers in order, with every promotion threshold resolved to ranks."""

    def __init__(self, tiers: Iterable[Tier], default: str | None = None) -> None:
        self.all = tuple(tiers)
        if not self.all:
            raise InvalidInput("at least one tier is needed")
        self.names = tuple(tier.name for tier in self.all)
        self._ranks = {name: rank for rank, name in enumerate(self.names)}
        self.default = default or self.names[min(1, len(self.names) - 1)]
        self.rank(self.default)
        self.thresholds = tuple(self._thresholds(rank) for rank in range(len(self.all)))
        self.patience = tuple(max((t for _, t in steps), default=0) for steps in self.thresholds)

    def rank(self, name: str) -> int:
        try:
            return self._ranks[name]
        except KeyError:
            raise UnknownName("tier", name, self.names) from None

    def __getitem__(self, name: str) -> Tier:
        return self.all[self.rank(name)]

    def __len__(self) -> int:
        return len(self.all)

    def _thresholds(self, rank: int) -> tuple[tuple[int, int], ...]:
        """(rank reached, microseconds of waiting), soonest first. Later ones are always better
        ranks."""
        found = sorted(
            (round(after * 1_000_000), self.rank(name))
            for name, after in self.all[rank].promote.items()
        )
        steps: list[tuple[int, int]] = []
        for after, reached in found:
            if reached > rank:
                raise InvalidInput(
                    f'tier "{self.names[rank]}" cannot be promoted down to "{self.names[reached]}"'
                )
            if not steps or reached < steps[-1][0]:
                steps.append((reached, after))
        return tuple(steps)
