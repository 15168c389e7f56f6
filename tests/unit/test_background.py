"""Work that goes on beside everything else ends when it is told to."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.background import end, end_all


async def deaf_once(begun: asyncio.Event) -> None:
    """As `asyncio.wait_for` before Python 3.12: one cancellation is lost."""
    begun.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


async def test_work_that_loses_a_cancellation_is_ended() -> None:
    """I28: a loop that did not hear of its end keeps nobody from closing a store."""
    begun = asyncio.Event()
    work = asyncio.create_task(deaf_once(begun))
    await begun.wait()
    async with asyncio.timeout(10):
        await end(work)
    assert work.cancelled()


async def test_work_that_has_failed_says_so_when_it_is_ended() -> None:
    async def fail() -> None:
        raise ValueError("a fault")

    work = asyncio.create_task(fail())
    await asyncio.wait([work])
    with pytest.raises(ValueError, match="a fault"):
        await end(work)
    await end_all([work])


async def test_who_is_cancelled_while_it_ends_other_work_is_cancelled() -> None:
    begun = asyncio.Event()
    work = asyncio.create_task(deaf_once(begun))
    await begun.wait()
    ending = asyncio.create_task(end(work))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    await end(work)
