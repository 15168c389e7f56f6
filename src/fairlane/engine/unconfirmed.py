"""Unconfirmed proposals: jobs that the index has proposed and that perhaps no worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from fairlane.engine.core import Core, publish
from fairlane.engine.settle import GivenBack, settle
from fairlane.errors import SetupError
from fairlane.index.index import Freed, HeldEntry, Proposal
from fairlane.model.lease import Lease
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

UNCONFIRMED_BATCH = 500
UNCONFIRMED_AFTER_MICROSECONDS = 5 * SECOND
VERIFY_PERIOD_MICROSECONDS = 30 * SECOND
MAX_TRIES, RETRY_PAUSE_SECONDS = 20, 0.5
"""Attempts to give leases back to a ledger that does not answer, and seconds between them."""


async def check_held(core: Core) -> int:
    """Release proposals that were never confirmed, and leases whose end the index has missed.
    Returns how many there were."""
    now = core.now()
    old = await core.index.unverified(now - UNCONFIRMED_AFTER_MICROSECONDS, UNCONFIRMED_BATCH)
    if not old:
        return 0
    runs = await _without_lost(core, old)
    await core.index.verified([held.token for held in runs], now + VERIFY_PERIOD_MICROSECONDS)
    return len(old) - len(runs)


async def give_back(core: Core, proposals: Sequence[Proposal]) -> None:
    """Return these proposals after their claim was cancelled or failed. Confirmed leases are given
    back, and the rest can no longer be confirmed: all jobs are queued again. Retries for about
    10 s while the ledger does not answer; after that the leases expire."""
    for _ in range(MAX_TRIES - 1):
        try:
            await _give_back(core, proposals)
        except SetupError:
            raise  # the ledger has been closed
        except Exception as error:  # noqa: BLE001 - any reason for no answer
            log.info("what was claimed is not given back yet: %s", error)
            await asyncio.sleep(RETRY_PAUSE_SECONDS)
        else:
            return
    await _give_back(core, proposals)


async def _give_back(core: Core, proposals: Sequence[Proposal]) -> None:
    runs = await _without_lost(core, proposals)
    found = [await core.ledger.lease(each.entry.id, each.token) for each in runs]
    leases = [lease for lease in found if isinstance(lease, Lease)]
    if leases:
        await settle(core, [GivenBack(lease) for lease in leases])


Handed = HeldEntry | Proposal


async def _without_lost(core: Core, handed: Sequence[Handed]) -> list[Handed]:
    """Revoke these tokens unless a lease runs under them. Returns those that run. The rest can no
    longer be confirmed, and their jobs are queued again unless they have ended."""
    written = await core.ledger.revoke(
        [(each.entry.id, each.entry.rev, each.token) for each in handed]
    )
    here = list(zip(handed, written.outcomes, strict=True))
    gone = [each for each, runs in here if not runs]
    if gone:
        now, kept = core.now(), {row.token for row in await core.ledger.slots()}
        await core.index.free([Freed(each.token) for each in gone if each.token not in kept], now)
        await core.index.verified([each.token for each in gone if each.token in kept], now)
        await publish(core, [each.entry.id for each in gone])
    core.ledger.published(written.receipts)
    return [each for each, runs in here if runs]
