"""The codec: encodes Python values as arguments of Lua scripts, and decodes entries and slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import Any, NamedTuple

import orjson

from fairlane.index.index import Freed, HeldEntry, Proposal
from fairlane.index.redis.multiplexed_connection import Word
from fairlane.model.catalog import Catalog
from fairlane.model.construct import maker
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Executor, Fairness, Service
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND

entry_of, slot_of, proposal_of = maker(Entry), maker(Slot), maker(Proposal)
BANDS = tuple(Band)

HEAD = Struct("<IdddBBBdHH")
"""The header of an encoded entry: rev, score, ready_at, cost, announced, band, rank, cap, and the
lengths of lane and model. Lane, model and user follow. Doubles are exact for integers up to
2^53."""

BODY = HEAD.size

MAX_CACHED_WORKER_KINDS = 1_000
"""The most worker kinds whose encoding is cached."""


def json(value: object) -> bytes:
    """Encode as JSON. Named tuples become lists."""
    return orjson.dumps(value, default=tuple)


def plain(answer: Any) -> Any:
    """Decode all bytes in an answer as UTF-8. The answer must not contain encoded entries."""
    if isinstance(answer, bytes):
        return answer.decode()
    return [plain(each) for each in answer] if isinstance(answer, list) else answer


def text(entry: Entry) -> bytes:
    """Encode an entry, without its id, as the index stores it."""
    _, rev, lane, band, rank, score, ready_at, user, model, cost, cap, announced = entry
    place, kind = lane.encode(), model.encode()
    head = HEAD.pack(rev, score, ready_at, cost, announced, band, rank, cap, len(place), len(kind))
    return b"".join((head, place, kind, user.encode()))


def entry(job: bytes | str, text: bytes) -> Entry:
    (
        rev, score, ready_at, cost, announced, band, rank, cap, lane_length, model_length,
    ) = HEAD.unpack_from(text)  # fmt: skip
    model_at = BODY + lane_length
    user_at = model_at + model_length
    return entry_of(
        (
            job if isinstance(job, str) else job.decode(),
            rev,
            text[BODY:model_at].decode(),
            BANDS[band],
            rank,
            int(score),
            int(ready_at),
            text[user_at:].decode(),
            text[model_at:user_at].decode(),
            int(cost),
            int(cap),
            announced,
        )
    )


def sent(entries: Sequence[Entry]) -> list[Word]:
    """Encode entries: for each job the number of its encoded entry (four bytes), then the encoded
    entries, then the ids. Equal entries are sent once. A repeated job is sent only if its revision
    is higher."""
    if len({each.id for each in entries}) < len(entries):
        entries = list(_rising(entries))
    texts: dict[tuple[object, ...], int] = {}
    words: list[Word] = [b""]
    numbers = []
    for each in entries:
        number = texts.get(each[1:])
        if number is None:
            number = texts[each[1:]] = len(words)
            words.append(text(each))
        numbers.append(number)
    words[0] = pack(f"<{len(numbers)}I", *numbers)
    return words + [each.id for each in entries]


def _rising(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Skip entries that do not have a higher revision than an earlier entry of the same job."""
    newest: dict[str, int] = {}
    for each in entries:
        if newest.get(each.id, -1) < each.rev:
            newest[each.id] = each.rev
            yield each


def slots(rows: Iterable[list[Any]]) -> tuple[Slot, ...]:
    return tuple([slot_of((pool.decode(), n, until)) for pool, n, until in rows])


def proposals(tokens: Iterable[str], answer: list[Any]) -> list[Proposal]:
    """Decode the proposals of a claim from a flat list: id, encoded entry, slots and region for
    each."""
    rows = zip(tokens, answer[::4], answer[1::4], answer[2::4], answer[3::4], strict=False)
    return [
        proposal_of(
            (
                token,
                entry(job, text),
                slots(taken) if taken else (),
                region.decode() if region else None,
            )
        )
        for token, job, text, taken, region in rows
    ]


def held(row: list[Any]) -> HeldEntry:
    token, job, text, taken, at = row
    return HeldEntry(token.decode(), entry(job, text), slots(taken), at)


def pairs(numbers: Iterable[tuple[str, int]]) -> list[Word]:
    """A flat list: id, number for each job."""
    return [part for job, number in numbers for part in (job, number)]


def freed(ended: Iterable[Freed]) -> list[Word]:
    """Encode ended leases: the list of services that answered; then for each lease its token,
    actual cost, kept slots and the number of the service that answered."""
    words: list[Word] = [b""]
    numbers: dict[tuple[str, str | None], int] = {}
    for token, actual, kept, answered in ended:
        words += (token, "" if actual is None else actual, json(kept) if kept else "")
        words.append("" if answered is None else numbers.setdefault(answered, len(numbers) + 1))
    words[0] = json([(service, region or "") for service, region in numbers])
    return words


def running(jobs: Iterable[HeldEntry]) -> list[Word]:
    """A flat list: token, id, encoded entry, slots and start time for each job."""
    return [
        part
        for each in jobs
        for part in (each.token, each.entry.id, text(each.entry), json(each.slots), each.at)
    ]


class Asking(NamedTuple):
    """A claim of one worker: it asks for as many jobs as there are tokens."""

    kind: str
    id: str
    loaded: Loaded
    epoch: str
    tokens: Sequence[str]


def asked(asking: Iterable[Asking]) -> list[Word]:
    words: list[Word] = []
    for kind, worker, loaded, epoch, tokens in asking:
        words += (kind, worker, *loaded, epoch, len(tokens), *tokens)
    return words


def kind(asking: Worker, process: str) -> str:
    """Encode the properties that decide which jobs a worker can run. Equal workers share a kind."""
    return _kind(
        process,
        asking.services,
        asking.excluded,
        asking.region,
        asking.capabilities,
        asking.tiers,
        asking.regions,
    )


@lru_cache(MAX_CACHED_WORKER_KINDS)
def _kind(
    process: str,
    services: frozenset[str] | None,
    excluded: frozenset[str],
    region: str | None,
    capabilities: frozenset[str],
    tiers: frozenset[str] | None,
    regions: tuple[str, ...],
) -> str:
    found: dict[str, object] = {
        "process": process,
        "services": None if services is None else sorted(services),
        "excluded": sorted(excluded),
        "region": region,
        "capabilities": sorted(capabilities),
        "tiers": None if tiers is None else sorted(tiers),
    }
    if regions:
        found["regions"] = regions
    return orjson.dumps(found).decode()


def settings(catalog: Catalog) -> tuple[bytes, bytes, bytes]:
    """Encode the catalog: (tiers and task defaults, services, limits of all pools)."""
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
        "called": service.executor is Executor.HTTP,
        "batch": service.batch_size,
        "model_load": round(service.model_load * SECOND),
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
