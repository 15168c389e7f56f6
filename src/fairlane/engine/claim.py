"""Claim (dequeue with a lease): the index proposes jobs, the ledger confirms them, and a worker
gets only confirmed jobs."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter

from fairlane.engine import job_log
from fairlane.engine.core import Core, sync_pool
from fairlane.engine.live_settings import limit_task_types, tell_index
from fairlane.engine.rebuild import keep_up
from fairlane.engine.unconfirmed import give_back
from fairlane.errors import NotReady, UnknownName
from fairlane.ids import token
from fairlane.index.index import Proposal
from fairlane.ledger.messages import Confirmation, Unconfirmed
from fairlane.model.construct import maker
from fairlane.model.lease import Lease
from fairlane.model.service import Executor, user_pool
from fairlane.model.state import State
from fairlane.model.step import Lane, service_of
from fairlane.model.worker import Loaded, Worker, holder
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

REFUSED_PAUSE_SECONDS = 0.02
"""Seconds that a waiting claim pauses after its proposals were refused, or while the index is not
ready. Meanwhile the index is corrected."""

confirmation = maker(Confirmation)

PAUSED, UNKNOWN = "its service is paused", "no such service or tier"
OTHER_POOLS = "not the pools it needs"
OTHER_REGION = "not a region that the job and the worker allow"

MAX_CLAIM_ROUNDS = 3
"""Rounds in which the ledger refuses all proposals before a claim returns without a lease."""


async def claim(
    core: Core,
    worker: Worker,
    n: int,
    *,
    wait: int = 0,
    call: str = "",
    stop: asyncio.Event | None = None,
) -> list[Lease]:
    """Up to n leases, in the order of service. `wait` (µs) makes it a long poll: it returns as soon
    as there is a lease, when the time is over, or when `stop` is set and the worker is woken."""
    until = core.now() + wait
    core.seen[worker.id] = (worker, core.now())
    waiter = replace(worker, id=f"{worker.id}#{token()}") if wait else worker
    try:
        while worker.id not in core.draining:
            if not core.ready.is_set():
                await core.clock.wait(core.ready, until - core.now())
            found, look_again_at = await _try(core, worker, waiter, n, call)
            stopped = stop is not None and stop.is_set()  # read once listed as idle
            if found or stopped or core.now() >= until:
                return found
            core.waiting_claims += 1
            try:
                await core.index.wait(waiter.id, min(until, look_again_at))
            finally:
                core.waiting_claims -= 1
        return []
    finally:
        with suppress(NotReady):  # the index removes idle workers by itself
            await core.index.leave(waiter.id)


async def _try(
    core: Core, worker: Worker, waiter: Worker, n: int, call: str
) -> tuple[list[Lease], int]:
    """Try to claim, without waiting. `waiter` is the name under which the index lists this call as
    idle: one worker may wait in several calls at once. Returns the leases, and when to try again at
    the latest (µs; 0 = at once)."""
    look_again_at = 0
    for _ in range(MAX_CLAIM_ROUNDS):
        loaded = core.loaded.get(worker.id, Loaded())
        began = perf_counter()
        try:
            picks = await core.index.claim(waiter, loaded, n, core.now(), core.epoch)
        except NotReady:
            await _keep_up(core)
            break
        if not picks.proposals:
            look_again_at = picks.look_again_at
            break
        try:
            leases = await _confirm(core, worker, picks.proposals, call)
        except BaseException:  # cancelled or ledger error: confirmed leases have no holder
            core.finish(give_back(core, picks.proposals))
            raise
        if leases:
            core.instrumentation.started(leases, perf_counter() - began)
            job_log.started(leases)
            for lease in leases:
                if not (lease.slot and core.service(lease.service).executor is Executor.HTTP):
                    loaded = loaded.after(lease.model, lease.started_at)  # else its slot has it
            core.loaded[worker.id] = loaded
            return leases, look_again_at
    await asyncio.sleep(REFUSED_PAUSE_SECONDS if look_again_at == 0 else 0)
    return [], look_again_at


async def _confirm(
    core: Core, worker: Worker, proposals: Sequence[Proposal], call: str
) -> list[Lease]:
    refused, proposals = _split_proposals(core, worker, proposals)
    written = await core.ledger.confirm(_confirmations(core, worker, proposals, call))
    leases: list[Lease] = []
    waits: defaultdict[tuple[str, str, int, int], list[int]] = defaultdict(list)
    for proposal, outcome in zip(proposals, written.outcomes, strict=True):
        if isinstance(outcome, Lease):
            leases.append(outcome)
            kind = outcome.service, outcome.tier, proposal.entry.rank, outcome.started_at
            waits[kind].append(outcome.started_at - proposal.entry.ready_at)
        elif isinstance(outcome, Unconfirmed):
            refused.append((proposal, outcome))
        else:
            refused.append((proposal, Unconfirmed("could not be written")))
    for (service, tier, rank, at), each in waits.items():
        core.activity.started(service, tier, each, core.catalog.tiers.all[rank].target, at)
    if refused:
        try:
            await correct_index(core, refused)
        except Exception as error:  # noqa: BLE001 - what was confirmed is handed out all the same
            log.warning("the index was not told what was refused: %s", error)
    core.subscriptions.tell(lease.job for lease in leases)
    if core.forecasts:
        _learn(core, leases)
    return leases


def _learn(core: Core, leases: Sequence[Lease]) -> None:
    """Compare the real starts with the ETAs that were given, to calibrate the forecasts."""
    for lease in leases:
        at = lease.started_at
        outcome = core.forecasts.started(lease.job, lease.service, lease.model, at)
        if outcome is not None:
            core.instrumentation.foretold(lease.service, lease.tier, outcome.error / SECOND)
            core.activity.foretold(lease.service, lease.tier, at, kept=outcome.kept)


def _split_proposals(
    core: Core, worker: Worker, proposals: Sequence[Proposal]
) -> tuple[list[tuple[Proposal, Unconfirmed]], Sequence[Proposal]]:
    """Splits the proposals: those to refuse at once, and those for the ledger to decide. The index
    may not know yet that a service is paused or a tier is removed, or may have wrong entries."""
    reasons = {
        place: _refusal_reason(core, worker, *place)
        for place in {(each.entry.lane, each.region) for each in proposals}
    }
    tiers = len(core.catalog.tiers.all)
    if not any(reasons.values()) and all(each.entry.rank < tiers for each in proposals):
        return [], proposals
    refused, hopeful = [], []
    for each in proposals:
        reason = reasons[each.entry.lane, each.region]
        reason = reason or (UNKNOWN if each.entry.rank >= tiers else None)
        if reason is None:
            hopeful.append(each)
        else:
            refused.append((each, Unconfirmed(reason)))
    return refused, hopeful


def _refusal_reason(core: Core, worker: Worker, lane: str, region: str | None) -> str | None:
    try:
        service = core.catalog.service(service_of(lane))
    except UnknownName:
        return UNKNOWN
    reached = region in worker.places or (region is None and not service.regions)
    if not reached or not Lane.parse(lane).allows(region):
        return OTHER_REGION
    return PAUSED if service.paused else None


def _confirmations(
    core: Core, worker: Worker, proposals: Sequence[Proposal], call: str
) -> list[Confirmation]:
    """The confirmations to write. The pools come from the settings; those that the index names are
    not trusted."""
    now, tiers, stamp = core.now(), core.catalog.tiers.all, core.stamp
    holder_name = holder(worker.id, call)
    needed: dict[tuple[str, str | None], frozenset[str]] = {}
    found = []
    for lease_token, entry, slots, region in proposals:
        tier = tiers[entry.rank]
        pools = needed.get((entry.lane, region))
        if pools is None:
            limited = core.catalog.pools(service_of(entry.lane), region)
            pools = needed[entry.lane, region] = frozenset(pool.name for pool in limited)
        cap = tier.max_running_per_user
        if cap:
            pools = pools | {user_pool(entry.user)}
        values = (
            lease_token,
            entry.id,
            entry.rev,
            entry.lane,
            tier.name,
            entry.user,
            slots,
            pools,
            cap,
            holder_name,
            region,
            entry.cost,
            worker.lease,
            now,
            stamp,
        )
        found.append(confirmation(values))
    return found


async def correct_index(core: Core, refused: Sequence[tuple[Proposal, Unconfirmed]]) -> None:
    """Correct the index after refusals: it gets the state of these jobs from the ledger."""
    now = core.now()
    await core.index.drop([proposal.token for proposal, _ in refused], now)
    found = await core.ledger.jobs([proposal.entry.id for proposal, _ in refused])
    for proposal, _ in refused:
        job = found.get(proposal.entry.id)
        queued = job is not None and job.state is State.QUEUED and not job.fan_out
        truth = core.entry(job) if job is not None and queued else None
        await core.index.correct_entry(proposal.entry, truth, now)
    pools = sorted({pool for _, refusal in refused for pool in refusal.pools})
    await limit_task_types(core, pools)
    for pool in pools:
        await sync_pool(core, pool)
    reasons = {refusal.reason for _, refusal in refused}
    if OTHER_POOLS in reasons:
        await tell_index(core)
    if {"another epoch", PAUSED} & reasons:
        await _keep_up(core)


async def _keep_up(core: Core) -> None:
    """Join a new index epoch or new settings. If the index is unreachable, a later sweep does
    it."""
    with suppress(NotReady):
        await keep_up(core)
