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
        self._used: dict[tuple[str, str, str], None] = {}
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
        if sample.tenant is not None and sample.model:
            self._use((sample.tenant, sample.service, sample.model))

    def count_load(self, service: str, model: str) -> None:
        """A job was started that has to load this model."""
        row = self._row(service, model)
        self._put(row._replace(loads=row.loads + 1))

    def recent(self, service: str, tenant: str | None, most: int) -> list[ModelTimes]:
        """Those of a service that were used last, by completed jobs of this tenant or of any."""
        if tenant is None:
            models = [model for name, model in self._rows if name == service and model]
        else:
            used = [model for *user, model in self._used if user == [tenant, service]]
            models = [model for model in used if (service, model) in self._rows]
        return [self._rows[service, model] for model in models[: -most - 1 : -1]]

    def _row(self, service: str, model: str) -> ModelTimes:
        return self._rows.pop((service, model), ModelTimes(service, model, None, None, 0))

    def _use(self, key: tuple[str, str, str]) -> None:
        """Note that a job of a (tenant, service, model) was completed."""
        self._used.pop(key, None)
        self._used[key] = None
        if len(self._used) > self._most:
            del self._used[next(iter(self._used))]

    def _put(self, row: ModelTimes) -> None:
        self._rows[row.service, row.model] = row
        while len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]
