"""Listeners to jobs in several processes hear of changes over pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from fairlane.index.redis import RedisIndex
from tests.index.server import running_server
from tests.index.test_several_processes import CLOCK, catalog, limit_the_user, permissions

BURST = 1_000


@pytest.fixture
def prefix() -> str:
    return f"{{{uuid4().hex}}}:"


@pytest.fixture
async def here(redis_url: str, prefix: str) -> AsyncIterator[RedisIndex]:
    async with RedisIndex(catalog(), CLOCK, redis_url, prefix=prefix) as index:
        yield index


@pytest.fixture
async def there(redis_url: str, prefix: str) -> AsyncIterator[RedisIndex]:
    async with RedisIndex(catalog(), CLOCK, redis_url, prefix=prefix) as index:
        yield index


async def subscribed(index: RedisIndex, job: str) -> asyncio.Event:
    """Set with each message about the job from now on; the server has accepted the subscription."""
    changed = asyncio.Event()
    index.subscribe(job, changed.set)
    await heard(changed)
    return changed


async def heard(changed: asyncio.Event) -> None:
    async with asyncio.timeout(30):
        await changed.wait()
    changed.clear()


async def test_a_listener_looks_again_when_its_subscription_has_begun(here: RedisIndex) -> None:
    """I25: a message sent before that was not heard, and no other one follows."""
    changed = asyncio.Event()
    here.subscribe("job", changed.set)
    await heard(changed)


async def test_a_change_by_one_process_reaches_a_listener_in_another(
    here: RedisIndex, there: RedisIndex
) -> None:
    """I25: also the second one, and one of a job that was listened to before."""
    changed = await subscribed(there, "job")
    for _ in range(3):
        here.notify(["job"])
        await heard(changed)
    there.unsubscribe("job")
    changed = await subscribed(there, "job")
    here.notify(["job"])
    await heard(changed)


async def test_listeners_look_again_when_their_connection_was_lost(
    here: RedisIndex, there: RedisIndex, redis_url: str
) -> None:
    """I25: messages sent meanwhile are lost. Then messages arrive again, for all of its jobs."""
    jobs = {name: await subscribed(there, name) for name in ("one", "two")}
    async with Redis.from_url(redis_url) as server:
        await server.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]
    for changed in jobs.values():
        await heard(changed)
    for name, changed in jobs.items():
        here.notify([name])
        await heard(changed)


async def test_a_process_is_not_woken_by_its_own_message(
    here: RedisIndex, there: RedisIndex
) -> None:
    """Its own listeners have been woken already, without Redis."""
    own, other = await subscribed(here, "own"), await subscribed(here, "other")
    elsewhere = await subscribed(there, "own")
    here.notify(["own"])
    await heard(elsewhere)
    there.notify(["other"])
    await heard(other)
    assert not own.is_set()


async def test_what_is_known_when_an_index_is_closed_is_sent(
    here: RedisIndex, there: RedisIndex
) -> None:
    first, last = await subscribed(there, "first"), await subscribed(there, "last")
    here.notify(["first"])
    await asyncio.sleep(0)
    here.notify(["last"])
    await here.close()
    await heard(first)
    await heard(last)


# --- what it costs -------------------------------------------------------------------------------
async def messages(ears: PubSub, last: str) -> list[str]:
    """Every message up to this one."""
    found: list[str] = []
    while last not in found:
        said = await ears.get_message(ignore_subscribe_messages=True, timeout=60)
        if said is not None:
            found.append(said["data"].decode())
    return found


async def test_without_a_listener_nothing_is_published(
    here: RedisIndex, redis_url: str, prefix: str
) -> None:
    async with Redis.from_url(redis_url) as server, server.pubsub() as ears:
        await ears.subscribe(f"{prefix}changed:job")
        here.notify(["job"])
        await here.close()
        await server.publish(f"{prefix}changed:job", "end")
        assert await messages(ears, "end") == ["end"]


async def test_many_changes_at_once_are_one_message(
    here: RedisIndex, there: RedisIndex, redis_url: str, prefix: str
) -> None:
    changed = await subscribed(there, "job")
    async with Redis.from_url(redis_url) as server, server.pubsub() as ears:
        await ears.subscribe(f"{prefix}changed:job")
        for number in range(BURST):
            here.notify(["job", f"other-{number}"])
        await heard(changed)
        await server.publish(f"{prefix}changed:job", "end")
        assert len(await messages(ears, "end")) == 2


async def test_the_permissions_of_the_documentation_are_enough_for_listeners(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """S16"""
    with running_server(tmp_path_factory.mktemp("redis")) as url:
        await limit_the_user(url, *permissions())
        async with (
            RedisIndex(catalog(), CLOCK, url) as one,
            RedisIndex(catalog(), CLOCK, url) as two,
        ):
            changed = await subscribed(two, "job")
            one.notify(["job"])
            await heard(changed)
            two.unsubscribe("job")
