"""Workers as they are stored: an older process can read what a newer one wrote."""

from __future__ import annotations

import orjson

from fairlane.ledger.worker_specs import worker_spec, workers
from fairlane.model.worker import Worker, WorkerState


def test_a_worker_is_read_as_it_was_written() -> None:
    worker = Worker("w", frozenset({"a"}), regions=("US", "EU"), tiers=frozenset({"high"}))
    ((read, heard),) = workers([("w", worker_spec(worker), "active", 7)])
    assert (read, heard) == (worker, 7)


def test_a_field_that_only_a_newer_version_knows_is_left_out() -> None:
    spec = orjson.loads(worker_spec(Worker("w"))) | {"colour": "blue"}
    ((read, _),) = workers([("w", orjson.dumps(spec).decode(), "draining", 0)])
    assert read == Worker("w", state=WorkerState.DRAINING)
