"""Estimates of durations, learnt as an exponential moving average."""

from __future__ import annotations

FIRST_COST_MICROSECONDS = 1_000_000
ALPHA_THOUSANDTHS = 200
"""The weight of the newest value, in thousandths."""
MAX_AVERAGES = 10_000


def moving_average(old: int | None, value: int) -> int:
    return value if old is None else old + (value - old) * ALPHA_THOUSANDTHS // 1000


class Average:
    """A moving average per key, bounded in size: the least recently updated keys are dropped."""

    def __init__(self, first: int, most_keys: int = MAX_AVERAGES) -> None:
        self._first, self._most = first, most_keys
        self._values: dict[tuple[str, str], int] = {}

    def get(self, service: str, model: str = "") -> int:
        """The average for this model, else for the service, else the first guess."""
        found = self._values.get((service, model))
        if found is None:
            found = self._values.get((service, ""))
        return self._first if found is None else found

    def learn(self, value: int, service: str, model: str = "") -> None:
        for key in {(service, model), (service, "")}:
            self._values[key] = moving_average(self._values.pop(key, None), value)
        while len(self._values) > self._most:
            del self._values[next(iter(self._values))]
