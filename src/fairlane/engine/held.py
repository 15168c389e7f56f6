"""What the index has handed out, and nobody may be working at."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.engine.core import Core, publish
from fairlane.engine.settle import GivenBack, settle
from fairlane.index.index import Freed, Held, Proposal
from fairlane.model.lease import Lease

SECOND = 1_000_000
BATCH = 500
HELD_TOO_LONG = 5 * SECOND
VERIFY_AGAIN = 30 * SECOND


async def check_held(core: Core) -> int:
    """Proposals that were never confirmed, or leases whose end the index has missed."""
    now = core.now()
    old = await core.index.unverified(now - HELD_TOO_LONG, BATCH)
    if not old:
        return 0
    runs = await _without_lost(core, old)
    await core.index.verified([held.token for held in runs], now + VERIFY_AGAIN)
    return len(old) - len(runs)


async def give_back(core: Core, proposals: Sequence[Proposal]) -> None:
    """Whoever claimed these has gone. What was confirmed is given back, and what was not never will
    be: all of them are in line again."""
    runs = await _without_lost(core, proposals)
    found = [await core.ledger.lease(each.entry.id, each.token) for each in runs]
    leases = [lease for lease in found if isinstance(lease, Lease)]
    if leases:
        await settle(core, [GivenBack(lease) for lease in leases])


Handed = Held | Proposal


async def _without_lost(core: Core, handed: Sequence[Handed]) -> list[Handed]:
    """Those that run under their tokens. The others cannot be confirmed any more, and are in line
    again if they are still to be done."""
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
