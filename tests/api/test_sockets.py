"""What a WebSocket keeps until somebody listens."""

from __future__ import annotations

import asyncio

from fairlane.api.sockets import Inbox


async def test_what_has_come_is_heard_in_order_and_what_comes_wakes_who_waits() -> None:
    inbox = Inbox()
    for number in range(3):
        inbox.put_nowait(number)
    assert [await inbox.get() for _ in range(3)] == [0, 1, 2]
    assert inbox.empty()
    waiting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put_nowait("now")
    inbox.put_nowait("later")
    assert await waiting == "now"
    assert not inbox.empty()
    assert await inbox.get() == "later"


async def test_who_stops_waiting_takes_nothing_with_them() -> None:
    inbox = Inbox()
    waiting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    inbox.put_nowait("kept")
    assert await inbox.get() == "kept"
