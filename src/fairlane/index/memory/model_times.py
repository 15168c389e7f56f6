"""What is learnt of models: moving averages of their load and work times, and how often each was
loaded."""

from __future__ import annotations

from fairlane.index.index import ModelSample, ModelTimes
from fairlane.policy.estimate import MAX_AVERAGES, moving_average


class LearntTimes:
    """One row per model, and one per service (model ""). The least recently updated rows are
    dropped."""

    def __init__(self, most: int = MAX_AVERAGES) -> None:
        self._rows: dict[tuple[str, str], ModelTimes] = {}
        self._most = most

    def load_time(self, service: str, model: str, first: int) -> int:
        """The average load time of this model, else of its service, else the first guess."""
        for key in ((service, model), (service, "")):
            row = self._rows.get(key)
            if row is not None and row.load is not None:
                return row.load
        return first

    def learn(self, sample: ModelSample) -> None:
        for model in dict.fromkeys((sample.model, "")):
            row = self._row(sample.service, model)
            if sample.load is not None:
                row = row._replace(load=moving_average(row.load, sample.load))
            if sample.work is not None:
                row = row._replace(work=moving_average(row.work, sample.work))
            self._put(row)

    def count_load(self, service: str, model: str) -> None:
        """A job was started that has to load this model."""
        row = self._row(service, model)
        self._put(row._replace(loads=row.loads + 1))

    def all(self) -> list[ModelTimes]:
        return sorted(row for row in self._rows.values() if row.model)

    def _row(self, service: str, model: str) -> ModelTimes:
        return self._rows.pop((service, model), ModelTimes(service, model, None, None, 0))

    def _put(self, row: ModelTimes) -> None:
        self._rows[row.service, row.model] = row
        while len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]
