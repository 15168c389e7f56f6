"""How nouns travel to the scripts and back: JSON there, lists of texts and whole numbers back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from fairlane.index.index import Held, Proposal
from fairlane.model.catalog import Catalog
from fairlane.model.entry import Entry
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.make import maker
from fairlane.model.service import Fairness, Service
from fairlane.model.worker import Loaded, Worker

entry_of, slot_of = maker(Entry), maker(Slot)
BANDS = tuple(Band)

Named = tuple[str, str]
"""An entry as the index keeps it: its id, and the text of all the rest."""


def json(value: object) -> bytes:
    """Named tuples become lists."""
    return orjson.dumps(value, default=tuple)


def named(entry: Entry) -> Named:
    return entry.id, orjson.dumps(entry[1:]).decode()


def entry(job: str, text: str) -> Entry:
    rev, lane, band, *rest = orjson.loads(text)
    return entry_of((job, rev, lane, BANDS[band], *rest))


def slots(rows: Iterable[list[Any]]) -> tuple[Slot, ...]:
    return tuple([slot_of(tuple(row)) for row in rows])


def proposal(row: list[Any]) -> Proposal:
    token, job, text, taken = row
    return Proposal(token, entry(job, text), slots(taken))


def held(row: list[Any]) -> Held:
    token, job, text, taken, at = row
    return Held(token, entry(job, text), slots(taken), at)


def worker(asking: Worker, loaded: Loaded, process: str) -> bytes:
    """A worker as it is filed when idle."""
    return orjson.dumps(
        {
            "id": asking.id,
            "process": process,
            "services": None if asking.services is None else sorted(asking.services),
            "region": asking.region,
            "capabilities": sorted(asking.capabilities),
            "tiers": None if asking.tiers is None else sorted(asking.tiers),
            "model": loaded.model,
        }
    )


def settings(catalog: Catalog) -> tuple[bytes, bytes, bytes]:
    """(tiers and the default task, the services, the limits of all pools)"""
    tiers, default = catalog.tiers, catalog.task_defaults
    rules = {
        "names": tiers.names,
        "thresholds": tiers.thresholds,
        "patience": tiers.patience,
        "defaults": None if default is None else _service(catalog, default),
    }
    services = {name: _service(catalog, each) for name, each in catalog.services.items()}
    return json(rules), json(services), json(list(catalog.all_pools().values()))


def _service(catalog: Catalog, service: Service) -> str:
    values: dict[str, object] = {
        "paused": service.paused,
        "fair": service.fairness is Fairness.USER,
        "affinity": str(service.affinity),
        "batch": service.batch_size,
        "limit": service.limit,
        "rate": service.rate,
        "shares": service.shares,
        "regions": [(region, each.limit) for region, each in service.regions.items()],
    }
    if service.provider is not None:
        provider = catalog.providers[service.provider]
        values |= {
            "provider": provider.name,
            "provider_limit": provider.limit,
            "provider_rate": provider.rate,
        }
    return json(values).decode()
