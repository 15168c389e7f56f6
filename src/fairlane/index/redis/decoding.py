"""Decoding of the answers of the Lua scripts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from fairlane.index.index import (
    BandDepth,
    Depth,
    ModelReport,
    ModelTimes,
    NextJob,
    PoolUse,
    SlotModel,
    Standing,
    Stats,
    TakenSlot,
    by_band,
)
from fairlane.index.redis import codec
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry
from fairlane.model.worker import Loaded
from fairlane.policy.circuit_breaker import CircuitBreaker, FailureVerdict
from fairlane.policy.shares import ShareKind


def stats(answer: list[Any]) -> Stats:
    depths, pools, breakers, held, idle, lanes, delayed, oldest_in, front = codec.plain(answer)
    return Stats(
        depths=[
            Depth(service, rank, waiting, delayed, oldest if waiting else None)
            for service, rank, waiting, delayed, oldest in sorted(depths)
        ],
        pools=[PoolUse(*pool) for pool in sorted(pools)],
        breakers={key: CircuitBreaker(tuple(failed), *rest) for key, failed, *rest in breakers},
        held=held,
        idle=idle,
        lanes=dict(lanes),
        delayed=dict(delayed),
        oldest=dict(oldest_in),
        front=dict(front),
    )


def models(answer: list[Any]) -> ModelReport:
    times, last, slots = codec.plain(answer)
    return ModelReport(
        [ModelTimes(*row) for row in times],
        Loaded(*last),
        sorted(SlotModel(pool, n, Loaded(*loaded)) for pool, n, *loaded in slots),
    )


def standing(answer: list[Any] | None) -> Standing | None:
    if answer is None:
        return None
    position, level, since, ahead, behind_own, reasons = codec.plain(answer)
    return Standing(position, level, since, ahead, behind_own, tuple(reasons))


def estimates(answer: list[Any]) -> dict[str, Standing]:
    found = ((codec.plain(job), standing(each)) for job, each in answer)
    return {job: each for job, each in found if each is not None}


def front(answer: list[Any]) -> list[NextJob]:
    return [
        NextJob(
            codec.entry(job, text),
            ShareKind(kind - 1),
            level,
            since,
            warm == 1,
            in_flow,
            blocked == 1,
        )
        for job, text, kind, level, since, warm, in_flow, blocked in answer
    ]


def held_slots(answer: list[Any]) -> list[TakenSlot]:
    found = []
    for pool, n, until, token, at, job, text in answer:
        entry = codec.entry(job, text) if job else None
        found.append(TakenSlot(Slot(pool.decode(), n, until), token.decode(), entry, at))
    return sorted(found, key=lambda each: each.slot)


def activity(periods: Sequence[int], answer: list[Any]) -> dict[int, dict[str, int]]:
    """The counts of each period that has any."""
    found = {}
    for period, row in zip(periods, answer, strict=True):
        if row:
            by_name = zip(islice(row, 0, None, 2), islice(row, 1, None, 2), strict=True)
            found[period] = {name.decode(): int(n) for name, n in by_name}
    return found


def band_depths(answer: list[Any]) -> list[BandDepth]:
    return by_band(BandDepth(Band(band), *rest) for band, *rest in answer)


def promotable(answer: list[Any]) -> list[tuple[str, int]]:
    return [(job, rank) for job, rank in codec.plain(answer)]


def breaker(answer: list[Any]) -> CircuitBreaker:
    failed, open_until, delay, probe = codec.plain(answer)
    return CircuitBreaker(tuple(failed), open_until, delay, probe)


def failure(answer: list[Any]) -> FailureVerdict:
    *stored, at_fault, attempts_returned = codec.plain(answer)
    return FailureVerdict(
        breaker(stored), free=at_fault == 1, attempts_returned=tuple(attempts_returned)
    )


def page(answer: list[Any]) -> tuple[bytes, list[Entry]]:
    """The cursor of the next page, and the waiting jobs of this one."""
    cursor, found = answer
    by_id = zip(islice(found, 0, None, 2), islice(found, 1, None, 2), strict=True)
    return cursor, [codec.entry(job, text) for job, text in by_id]


def differing(
    truth: Sequence[Entry], stored: list[tuple[int, bytes | None]]
) -> list[tuple[str, Entry | None]]:
    """The jobs whose stored entry differs in something that decides the order. `cost` is an
    estimate and `announced` a note: both are ignored."""
    found: list[tuple[str, Entry | None]] = []
    for entry, (held_rev, text) in zip(truth, stored, strict=True):
        known = None if text is None else codec.entry(entry.id, text)
        same = known is not None and _without_notes(known) == _without_notes(entry)
        if held_rev != entry.rev and not same:
            found.append((entry.id, known))
    return found


def _without_notes(entry: Entry) -> Entry:
    return entry._replace(cost=0, announced=0)
