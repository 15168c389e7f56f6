"""Streamed output: nothing is kept of a task that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.worker.direct_transport import DirectTransport
from fairlane.worker.output_sender import OutputSender
from fairlane.worker_protocol.messages import Offer, PollAsk
from tests.world import World, catalog


@pytest.mark.parametrize("end", ["finish", "drop"])
async def test_nothing_is_kept_of_a_chunk_that_comes_after_the_end(
    tmp_path: Path, end: str
) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit()
        transport = DirectTransport(world.engine)
        await transport.register(Offer())
        (task,) = (await transport.poll(PollAsk(1, wait=0))).tasks
        outputs = OutputSender(transport)
        outputs.begin(task.ref)
        outputs.add(task.ref, "in time")
        assert outputs.tasks == 1
        if end == "finish":
            await outputs.finish([task.ref])
        else:
            outputs.drop(task.ref)
        outputs.add(task.ref, "late")
        assert outputs.tasks == 0
        await transport.close()
