"""Baselines that the simulator compares: orders of service by name. First in first out, strict
priority, weights, round robin and others, beside our own."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.model.catalog import Catalog
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.isolated_pools import Isolated
from fairlane.simulate.order import Order
from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.queue_disciplines import GenerationQueue, ManyQueues, Ranked, RoundRobin

Maker = Callable[[Catalog, list[SimulatedSlot]], Order]

OURS = "fairlane"


def _ours(catalog: Catalog, _: list[SimulatedSlot]) -> Order:
    return FairlaneOrder(catalog)


def _fifo(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return Ranked("fifo", catalog, serving, lambda step: (step.ready_at,))


def _strict(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return Ranked("strict", catalog, serving, lambda step: (step.rank, step.ready_at))


def _weights(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    worst = len(catalog.tiers) - 1
    return RoundRobin(
        "weights",
        catalog,
        serving,
        klass=lambda _: 0,
        group=lambda step: step.rank,
        weight=lambda step: 2.0 ** (worst - step.rank),
    )


def _round_robin(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return RoundRobin(
        "round robin",
        catalog,
        serving,
        klass=lambda _: 0,
        group=lambda step: step.user,
        weight=lambda _: 1.0,
    )


def _strict_round_robin(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return RoundRobin(
        "strict + round robin",
        catalog,
        serving,
        klass=lambda step: step.rank,
        group=lambda step: step.user,
        weight=lambda _: 1.0,
    )


def _isolated(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return Isolated("isolated pools", catalog, serving)


def _in_threes(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return GenerationQueue("affinity in threes", catalog, serving)


def _by_hash(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return ManyQueues("queues by hash", catalog, serving, by_hash=True)


def _least_loaded(catalog: Catalog, serving: list[SimulatedSlot]) -> Order:
    return ManyQueues("least-loaded queues", catalog, serving, by_hash=False)


ORDERS: dict[str, Maker] = {
    OURS: _ours,
    "fifo": _fifo,
    "strict": _strict,
    "weights": _weights,
    "round robin": _round_robin,
    "strict + round robin": _strict_round_robin,
    "isolated pools": _isolated,
    "affinity in threes": _in_threes,
    "queues by hash": _by_hash,
    "least-loaded queues": _least_loaded,
}
