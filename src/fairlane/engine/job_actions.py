"""Job control actions: cancel, resume, replay (also of dead letters), skip. The ledger decides,
then the index is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fairlane.engine import job_log
from fairlane.engine.core import INDEX_BATCH, Core, publish
from fairlane.engine.pending_places import place_frees_at
from fairlane.engine.queries import get, view
from fairlane.engine.queue_limits import drained_at
from fairlane.errors import FairlaneError, InvalidInput, Refused, TooDear, UnknownName
from fairlane.ids import token
from fairlane.index.index import Freed
from fairlane.ledger.messages import Ended, Owner, Request, Skipped
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band, Job
from fairlane.model.state import Move
from fairlane.policy.eta_calibration import Eta
from fairlane.policy.quotas import Quota, quota_of
from fairlane.policy.skip import price


class StrictServices:
    """The set of strict services and task types: their slots stay taken while a call may still
    run."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __contains__(self, name: object) -> bool:
        try:
            return self._catalog.service(str(name)).strict
        except UnknownName:  # the service is no longer configured
            return False


class SkipQuote(NamedTuple):
    price: int
    balance: int
    saves: Eta | None


async def cancel(core: Core, job: str, tenant: str | None, op: str | None) -> None:
    strict = StrictServices(core.catalog)
    written = await core.ledger.cancel(_request(core, job, tenant, Move.CANCEL, op), strict)
    (ended,) = written.outcomes
    if isinstance(ended, FairlaneError):
        raise ended
    await tell_ended(core, ended, written.receipts)
    if ended:
        job_log.cancelled(job, tenant, len(ended))
    await _tell_parent(core, job)


async def tell_ended(core: Core, ended: Sequence[Ended], receipts: Sequence[int]) -> None:
    """Tell the index and the listeners that a request has ended these jobs."""
    freed = [Freed(each.token, None, each.kept) for each in ended if each.token is not None]
    with core.telling_index():
        for start in range(0, len(ended), INDEX_BATCH):
            part = ended[start : start + INDEX_BATCH]
            await core.index.take([(each.job, each.rev) for each in part])
            await asyncio.sleep(0)  # a large fan-out lets other calls run
        if freed:
            await core.index.free(freed, core.now())
        core.ledger.published(receipts)
    core.subscriptions.tell(each.job for each in ended)


async def reopen(core: Core, job: str, tenant: str | None, move: Move, op: str | None) -> list[str]:
    """Queue an ended job again. Returns the queued jobs: the job itself, or the cells of a
    fan-out."""
    quota = await _quota(core, job, tenant) if move is Move.RESUME else None
    return await _reopen(core, job, tenant, move, op, quota)


async def retry(core: Core, cell: str, tenant: str | None, op: str | None) -> list[str]:
    """Queue a failed cell again, with all attempts, if its user has a place."""
    quota = await _quota(core, cell, tenant)
    return await _reopen(core, cell, tenant, Move.REPLAY, op, quota)


async def retry_failed(core: Core, job: str, tenant: str | None, op: str | None) -> list[str]:
    """Queue all failed cells of a fan-out again, with all attempts, if its user has the places.
    Returns the cells."""
    found = await get(core, job, tenant)
    if not found.fan_out:
        raise InvalidInput("only a fan-out has executions; resume or replay this job instead")
    return await _reopen(core, job, tenant, Move.REOPEN, op, await _quota(core, job, tenant))


async def _reopen(
    core: Core, job: str, tenant: str | None, move: Move, op: str | None, quota: Quota | None
) -> list[str]:
    written = await core.ledger.reopen(_request(core, job, tenant, move, op), move, quota)
    (reopened,) = written.outcomes
    if isinstance(reopened, Refused):
        await _explain(core, reopened, await get(core, job, tenant))
    if isinstance(reopened, FairlaneError):
        raise reopened
    with core.telling_index():
        await publish(core, reopened.jobs)
        core.ledger.published(written.receipts)
    core.subscriptions.tell([job, *reopened.jobs])
    if not reopened.again:
        job_log.moved(move, job, tenant, len(reopened.jobs))
    await _tell_parent(core, job)
    return reopened.jobs


async def quote(core: Core, job: str, tenant: str | None) -> SkipQuote:
    seen = await view(core, job, tenant)
    if seen.job.user is None:
        raise InvalidInput("a job without a user cannot be charged; submit it with a user_id")
    balance = await core.ledger.balance(seen.job.tenant, seen.job.user)
    if seen.job.band is Band.SKIP:
        return SkipQuote(0, balance, None)
    if seen.job.fan_out:
        raise InvalidInput("skip the executions of a fan-out one by one")
    return SkipQuote(price(seen.job.duration, core.catalog.credits), balance, seen.saved_by_skip)


async def skip(
    core: Core, job: str, tenant: str | None, max_price: int | None, op: str | None
) -> Skipped:
    found = await get(core, job, tenant)
    cost = price(found.duration, core.catalog.credits)
    if max_price is not None and cost > max_price and found.band is not Band.SKIP:
        raise TooDear(cost, max_price)
    written = await core.ledger.skip(_request(core, job, tenant, Move.SKIP, op), cost)
    (skipped,) = written.outcomes
    if isinstance(skipped, FairlaneError):
        raise skipped
    with core.telling_index():
        await publish(core, [job])
        core.ledger.published(written.receipts)
    core.subscriptions.tell([job])
    if not skipped.again:
        job_log.skipped(job, tenant, skipped.price)
    return skipped


def _request(core: Core, job: str, tenant: str | None, move: Move, op: str | None) -> Request:
    """The request to the ledger. Its idempotency key contains the move, so the same `op` may be
    used for different moves."""
    return Request(job, tenant, f"{move} {op or token()}", core.now())


async def _quota(core: Core, job: str, tenant: str | None) -> Quota:
    tier = (await get(core, job, tenant)).tier
    return quota_of(core.catalog, tier)._replace(per_hour=0)


async def _explain(core: Core, refused: Refused, job: Job) -> None:
    """Add the job's tier, and when the limit frees."""
    now, refused.tier = core.now(), job.tier
    if refused.code == "queue_full":
        waiting = refused.limit - refused.left
        services = {*core.catalog.services, *(step.service for step in job.plan)}
        refused.frees_at = drained_at(core, waiting, now, services)
    else:
        refused.frees_at = await place_frees_at(core, Owner(job.tenant, job.user, job.key), now)


async def _tell_parent(core: Core, job: str) -> None:
    found = (await core.ledger.jobs([job])).get(job)
    if found is not None and found.parent is not None:
        core.subscriptions.tell([found.parent])
