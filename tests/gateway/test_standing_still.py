"""A strict limit, counted at the service, while the service, or everything, stands still."""

from __future__ import annotations

import signal
import time

import pytest

from tests.gateway.site import Site

TIMEOUT_SECONDS = 2.0
STILL_SECONDS = 3 * TIMEOUT_SECONDS

pytestmark = pytest.mark.long


async def test_a_service_that_stands_still_longer_than_its_calls_may_take_counts_none_too_many(
    site: Site,
) -> None:
    """I7: its process does nothing for three time limits. Calls are cut and others are made; when
    it wakes up it finds those that were given up in its sockets, and does not begin them."""
    chat = site.services["fast_chat_llm"]
    chat.seconds = 0.2
    site.set("services.fast_chat_llm", timeout=TIMEOUT_SECONDS, max_attempts=10)
    api = await site.serve()
    caller = await site.caller(api)
    jobs = [(await caller.submit("fast_chat_llm", user_id=f"u{n}"))["job_id"] for n in range(40)]
    await chat.until(lambda it: it.finished > 4)
    time.sleep(STILL_SECONDS)  # noqa: ASYNC251, TID251 - the service's process is this one
    for job in jobs:
        assert (await caller.ended(job))["status"] == "completed"
    print("most at once:", chat.most, "of", chat.limit, "refused:", chat.refused)
    assert (chat.most <= chat.limit, chat.refused) == (True, 0)


async def test_a_limit_holds_when_everything_stands_still_longer_than_a_call_may_take(
    site: Site,
) -> None:
    """I7: the callers and the service, for three time limits, as on a suspended machine."""
    chat = site.services["fast_chat_llm"]
    chat.seconds = 0.2
    site.set("services.fast_chat_llm", timeout=TIMEOUT_SECONDS, max_attempts=10)
    api = await site.serve()
    everybody = [api, *([await site.dispatch(), await site.dispatch()] if site.clustered else [])]
    caller = await site.caller(api)
    jobs = [(await caller.submit("fast_chat_llm", user_id=f"u{n}"))["job_id"] for n in range(40)]
    await chat.until(lambda it: it.finished > 4)
    for each in everybody:
        each.signal(signal.SIGSTOP)
    time.sleep(STILL_SECONDS)  # noqa: ASYNC251, TID251 - the service's process is this one
    for each in everybody:
        each.signal(signal.SIGCONT)
    for job in jobs:
        assert (await caller.ended(job))["status"] == "completed"
    print("most at once:", chat.most, "of", chat.limit, "refused:", chat.refused)
    assert (chat.most <= chat.limit, chat.refused) == (True, 0)
