"""What the scripts tell about the index, as nouns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.index.index import Depth, PoolUse, Stats
from fairlane.index.redis import texts
from fairlane.model.entry import Entry
from fairlane.policy.health import Gate


def stats(answer: list[Any]) -> Stats:
    depths, pools, gates, held, idle, lanes = texts.plain(answer)
    return Stats(
        depths=[
            Depth(service, rank, waiting, delayed, oldest if waiting else None)
            for service, rank, waiting, delayed, oldest in sorted(depths)
        ],
        pools=[PoolUse(*pool) for pool in sorted(pools)],
        gates={key: Gate(tuple(failed), *rest) for key, failed, *rest in gates},
        held=held,
        idle=idle,
        lanes=dict(lanes),
    )


def differing(
    truth: Sequence[Entry], shown: list[tuple[int, bytes | None]]
) -> list[tuple[str, Entry | None]]:
    """Cost is only an estimate and the announcement only a note; the rest decides the order."""
    found: list[tuple[str, Entry | None]] = []
    for entry, (held_rev, text) in zip(truth, shown, strict=True):
        known = None if text is None else texts.entry(entry.id, text)
        same = known is not None and _plain(known) == _plain(entry)
        if held_rev != entry.rev and not same:
            found.append((entry.id, known))
    return found


def _plain(entry: Entry) -> Entry:
    return entry._replace(cost=0, announced=0)
