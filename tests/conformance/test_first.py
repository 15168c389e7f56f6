"""A job goes in and comes out."""

from __future__ import annotations

from pathlib import Path

from fairlane.model.state import State
from tests.world import World, catalog


async def test_a_submitted_job_is_claimed_and_completed(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        job = await world.submit(input={"n": 1})
        lease = await world.claim_one()
        assert (lease.job, lease.input, lease.attempt) == (job, {"n": 1}, 1)
        await world.engine.complete(lease, {"ok": True})
        assert (await world.job(job)).state is State.COMPLETED
        await world.healthy()
