"""Several processes share one index in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from fairlane.clock import SystemClock
from fairlane.errors import NotReady, SetupError, UnknownName
from fairlane.index.index import Freed, HeldEntry
from fairlane.index.redis import RedisIndex
from fairlane.model.catalog import Catalog
from fairlane.model.lease import Slot
from fairlane.model.service import Fairness, Service
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.index.server import running_server
from tests.index.test_same_order import Life
from tests.unit.driver import COLD, LOW, TIERS, WORKER, job, plain

CLOCK = SystemClock()
NOW = 1_000 * SECOND
SOON = 5 * SECOND


def catalog(*services: Service, **more: Service) -> Catalog:
    return Catalog(TIERS, services or (plain(limit=1),), task_defaults=more.get("task_defaults"))


@pytest.fixture
def prefix() -> str:
    return f"{{{uuid4().hex}}}:"


@pytest.fixture
async def here(redis_url: str, prefix: str) -> AsyncIterator[RedisIndex]:
    async with RedisIndex(catalog(), CLOCK, redis_url, prefix=prefix) as index:
        await index.begin("e")
        assert await index.open("e", NOW)
        yield index


@pytest.fixture
async def there(here: RedisIndex, redis_url: str, prefix: str) -> AsyncIterator[RedisIndex]:
    async with RedisIndex(catalog(), CLOCK, redis_url, prefix=prefix) as index:
        yield index


async def names(index: RedisIndex, n: int = 1, worker: Worker = WORKER) -> list[str]:
    return [each.entry.id for each in (await index.claim(worker, COLD, n, NOW, "e")).proposals]


async def woken(index: RedisIndex, worker_id: str) -> bool:
    """Whether the worker is woken long before it would look again."""
    try:
        async with asyncio.timeout(SOON / SECOND):
            await index.wait(worker_id, CLOCK.now() + 60 * SECOND)
    except TimeoutError:
        return False
    return True


# --- one order for all -------------------------------------------------------------------------
async def test_what_one_process_puts_another_hands_out(here: RedisIndex, there: RedisIndex) -> None:
    await here.put([job("one"), job("two", at=1)], NOW)
    assert await names(there) == ["one"]
    assert await names(here) == []


async def test_a_put_wakes_a_worker_of_another_process(here: RedisIndex, there: RedisIndex) -> None:
    assert await names(there) == []
    waiting = asyncio.create_task(woken(there, WORKER.id))
    await here.put([job("one")], NOW)
    assert await waiting
    assert await names(there) == ["one"]


async def test_a_free_slot_wakes_a_worker_of_another_process(
    here: RedisIndex, there: RedisIndex
) -> None:
    await here.put([job("one"), job("two", at=1)], NOW)
    (first,) = (await here.claim(Worker("first"), COLD, 1, NOW, "e")).proposals
    assert await names(there) == []
    waiting = asyncio.create_task(woken(there, WORKER.id))
    await here.free([Freed(first.token, 1)], NOW)
    assert await waiting


async def test_a_ring_that_comes_before_the_worker_waits_is_not_lost(
    here: RedisIndex, there: RedisIndex
) -> None:
    assert await names(there) == []
    await here.put([job("one")], NOW)
    assert await woken(there, WORKER.id)


async def test_a_worker_is_dismissed_wherever_it_waits(here: RedisIndex, there: RedisIndex) -> None:
    assert await names(there, worker=Worker("w#1")) == []
    await here.end_waits("w")
    assert await woken(there, "w#1")


async def test_who_has_left_is_not_woken(here: RedisIndex, there: RedisIndex) -> None:
    assert await names(there) == []
    assert await names(here, worker=Worker("other")) == []
    await there.leave(WORKER.id)
    await there.put([job("one")], NOW)
    assert await woken(here, "other")


async def test_workers_of_a_process_that_is_gone_are_not_woken_instead_of_others(
    here: RedisIndex, redis_url: str, prefix: str
) -> None:
    async with RedisIndex(catalog(), CLOCK, redis_url, prefix=prefix) as gone:
        assert await names(gone, worker=Worker("ghost")) == []
    assert await names(here) == []
    await here.put([job("one")], NOW)
    assert await woken(here, WORKER.id)


async def test_a_model_may_have_any_name(here: RedisIndex, there: RedisIndex) -> None:
    for model in ("two\nlines", "\n", '"}', "é"):
        loaded = Loaded(model, NOW, 1)
        assert not (await there.claim(WORKER, loaded, 1, NOW, "e")).proposals
        await here.put([job(f"after {model}")], NOW)
        assert await woken(there, WORKER.id)
        assert await names(there) == [f"after {model}"]
        (held,) = await here.unverified(NOW + 1, 1)
        await here.free([Freed(held.token, 1)], NOW)


# --- lost answers --------------------------------------------------------------------------------
async def test_a_claim_asked_again_with_its_tokens_answers_the_same(
    here: RedisIndex, there: RedisIndex
) -> None:
    there.new_token = here.new_token = iter(["t1", "t1", "t2"]).__next__
    await here.put([job("one")], NOW)
    first = await here.claim(WORKER, COLD, 1, NOW, "e")
    again = await here.claim(WORKER, COLD, 1, NOW, "e")
    assert again.proposals == first.proposals
    assert (await here.stats()).held == 1


async def test_opening_twice_changes_nothing(here: RedisIndex) -> None:
    await here.put([job("one")], NOW)
    assert await here.open("e", NOW)
    assert (await here.stats()).lanes == {"s||": 1}


async def test_a_server_that_has_forgotten_the_scripts_learns_them_again(
    here: RedisIndex, redis_url: str
) -> None:
    async with Redis.from_url(redis_url) as server:
        await server.script_flush()
    await here.put([job("one")], NOW)
    assert await names(here) == ["one"]


async def test_a_server_that_has_forgotten_everything_is_not_ready(
    here: RedisIndex, redis_url: str, prefix: str
) -> None:
    async with Redis.from_url(redis_url) as server:
        await server.delete(*[key async for key in server.scan_iter(f"{prefix}*")])
    await here.put([job("one")], NOW)
    with pytest.raises(NotReady):
        await names(here)
    await here.begin("f")
    await here.load("f", [job("one")], [])
    assert await here.open("f", NOW)
    assert (await here.claim(WORKER, COLD, 1, NOW, "f")).proposals


# --- rebuild -------------------------------------------------------------------------------------
async def test_a_rebuild_leaves_nothing_of_the_life_before(
    here: RedisIndex, redis_url: str, prefix: str
) -> None:
    await here.put([job("one"), job("two", user="v"), job("three", ready_at=9_000)], NOW)
    assert await names(here) == ["one"]
    await here.begin("f")
    async with Redis.from_url(redis_url, decode_responses=True) as server:
        left = {key async for key in server.scan_iter(f"{prefix}*")}
    lives = {key.removeprefix(prefix).partition(":")[0] for key in left}
    assert len([life for life in lives if life.startswith("@")]) == 1


async def test_more_jobs_than_line_up_in_one_call_are_all_in_line(here: RedisIndex) -> None:
    await here.begin("f")
    await here.load("f", [job(f"j{n}", at=n, user=f"u{n % 7}") for n in range(2_500)], [])
    assert await here.open("f", NOW)
    assert sum((await here.stats()).lanes.values()) == 2_500


async def test_only_the_latest_rebuild_opens(here: RedisIndex, there: RedisIndex) -> None:
    await here.begin("f")
    await there.begin("g")
    assert not await here.open("f", NOW)
    assert await there.open("g", NOW)


async def test_a_claim_under_another_life_is_served_nothing(here: RedisIndex) -> None:
    """I5: its process has missed a rebuild. Nothing leaves the line for it."""
    await here.put([job("one")], NOW)
    with pytest.raises(NotReady):
        await here.claim(WORKER, COLD, 1, NOW, "an earlier life")
    assert await names(here) == ["one"]


async def test_pages_of_another_rebuild_are_ignored(here: RedisIndex, there: RedisIndex) -> None:
    """I26: whoever stood still in the middle of a rebuild does not spoil the next one."""
    await here.begin("f")
    await there.begin("g")
    await here.load("f", [job("old")], [HeldEntry("t", job("older"), (), 0)])
    await here.load_slots("f", [(Slot("svc:s", 1), "t")])
    assert await there.open("g", NOW)
    stats = await there.stats()
    assert (stats.lanes, stats.held, sum(pool.held for pool in stats.pools)) == ({}, 0, 0)


async def test_clearing_up_after_a_rebuild_spares_the_present_life(here: RedisIndex) -> None:
    """I27: what an old life has left is found by looking through all keys."""
    await here.begin("f")
    assert await here.open("f", NOW)
    assert await here.serves("f") is not None


async def test_an_index_that_was_built_on_another_server_is_not_believed(
    here: RedisIndex, redis_url: str, prefix: str
) -> None:
    """I26: a replica has the same keys, perhaps old ones."""
    async with Redis.from_url(redis_url) as server:
        await server.hset(f"{prefix}meta", "server", "0" * 40)
    assert await here.serves("e") is None


async def test_only_the_life_that_was_found_damaged_is_ended(
    here: RedisIndex, there: RedisIndex, redis_url: str, prefix: str
) -> None:
    """I27: whoever has missed a rebuild says nothing about the life after it."""
    await there.begin("f")
    assert await there.open("f", NOW)
    async with Redis.from_url(redis_url, decode_responses=True) as server:
        (marker,) = [key async for key in server.scan_iter(f"{prefix}@*:marker")]
        await server.set(marker.replace("marker", "jobs"), "garbage")
    with pytest.raises(NotReady):
        await here.put([job("one")], NOW)
    assert await there.serves("f") is not None


async def test_the_slot_of_a_proposal_on_its_way_is_left_alone(here: RedisIndex) -> None:
    """I10: the ledger has no row for it yet. It has one when the lease has been looked up."""
    await here.put([job("one")], NOW)
    (proposal,) = (await here.claim(WORKER, COLD, 1, NOW, "e")).proposals
    assert await here.sync_slots("svc:s", [], NOW) == 0
    await here.verified([proposal.token], NOW)
    assert await here.sync_slots("svc:s", [], NOW) == 1


async def test_a_correction_that_comes_late_changes_nothing(here: RedisIndex) -> None:
    """I27: the index has heard of the job since somebody looked."""
    seen = job("one")
    await here.put([seen], NOW)
    await here.put([seen._replace(rev=seen.rev + 1)], NOW)
    await here.correct_entry(seen, None, NOW)
    assert await names(here) == ["one"]


async def test_a_delayed_job_is_served_though_its_service_was_tidied_away(here: RedisIndex) -> None:
    await here.put([job("one", ready_at=1_010)], NOW)
    await here.cleanup(NOW)
    picks = await here.claim(WORKER, COLD, 1, NOW + 10 * SECOND, "e")
    assert [each.entry.id for each in picks.proposals] == ["one"]


# --- much at once --------------------------------------------------------------------------------
async def commands(redis_url: str) -> int:
    """How many the server has run so far, those of scripts too."""
    async with Redis.from_url(redis_url) as server:
        found = await server.info("commandstats")
    return sum(each["calls"] for each in found.values())


async def test_who_looks_holds_nobody_up_however_many_users_wait(
    here: RedisIndex, redis_url: str
) -> None:
    """A script is alone with the server: of very many lines it looks at some."""
    late = NOW + 3_600 * SECOND
    spent = []
    for users in (3_000, 9_000):
        await here.put([job(f"j{n}", user=f"u{n}", rank=LOW) for n in range(users)], NOW)
        before = await commands(redis_url)
        stats = await here.stats()
        standing = await here.standing(f"j{users - 1}", NOW)
        assert len(await here.promotable(late, 100)) == 100
        spent.append(await commands(redis_url) - before)
        assert [depth.waiting for depth in stats.depths] == [users]
        assert standing is not None
        assert abs(standing.position - users) < users / 10
    assert spent[1] < 1.1 * spent[0]


async def test_of_very_many_promotions_all_are_told_in_the_end(here: RedisIndex) -> None:
    late, told = NOW + 3_600 * SECOND, set()
    await here.put([job(f"j{n}", user=f"u{n}", rank=LOW) for n in range(5_000)], NOW)
    for _ in range(6):
        found = await here.promotable(late, 5_000)
        await here.announced(found)
        told |= {name for name, _ in found}
    assert len(told) == 5_000


async def test_other_rules_of_order_for_very_many_begin_a_new_life(here: RedisIndex) -> None:
    """Lining up thousands anew in one call would hold everybody up; a rebuild does not."""
    await here.put([job(f"j{n}") for n in range(3_000)], NOW)
    await here.configure(catalog(plain(limit=1, fairness=Fairness.NONE)), 1)
    with pytest.raises(NotReady):
        await names(here)
    assert await here.serves("e") is None
    assert await here.standing("j0", NOW) is None
    assert (await here.stats()).lanes == {}


# --- the server ----------------------------------------------------------------------------------
async def test_a_server_that_evicts_keys_is_refused(tmp_path: Path) -> None:
    """S16, I26: it would lose jobs in line without a word."""
    with running_server(tmp_path, "--maxmemory-policy", "allkeys-lru") as url:
        index = RedisIndex(catalog(), CLOCK, url)
        with pytest.raises(SetupError, match="noeviction"):
            await index.__aenter__()
        await index.__aexit__()


async def test_a_server_that_is_away_is_not_ready_and_then_it_is(tmp_path: Path) -> None:
    with running_server(tmp_path) as url:
        index = RedisIndex(catalog(), CLOCK, url)
        await index.begin("e")
        assert await index.open("e", NOW)
    with pytest.raises(NotReady):
        await names(index)
    with running_server(tmp_path) as url:
        with pytest.raises(NotReady):
            await names(index)
        await index.begin("f")
        assert await index.open("f", NOW)
        await index.__aexit__()


def permissions() -> list[str]:
    """What the documentation allows the index to do."""
    page = (Path(__file__).parents[2] / "docs/decisions/0007-redis.md").read_text("utf-8")
    words = page.partition("ACL SETUSER fairlane ")[2].partition("```")[0].split()
    return [word for word in words if not word.startswith(">")]


async def limit_the_user(url: str, *rules: str) -> None:
    async with Redis.from_url(url) as server:
        await server.execute_command("ACL", "SETUSER", "default", "reset", "nopass", *rules)  # type: ignore[no-untyped-call]


async def test_a_user_with_the_permissions_of_the_documentation_is_enough(tmp_path: Path) -> None:
    """S16: and this user reaches no other key."""
    with running_server(tmp_path) as url:
        await limit_the_user(url, *permissions())
        async with RedisIndex(catalog(), CLOCK, url) as index:
            await index.begin("e")
            assert await index.open("e", NOW)
            assert await names(index) == []
            await index.put([job("one")], NOW)
            assert await woken(index, WORKER.id)
            assert await names(index) == ["one"]
            await index.begin("f")
        async with Redis.from_url(url) as server:
            with pytest.raises(NoPermissionError):
                await server.get("something else")


async def test_random_lives_need_no_further_permission(tmp_path: Path) -> None:
    """S16: every verb of the index, in any order."""
    with running_server(tmp_path) as url:
        rules = [word.replace("{fairlane}", "{fuzz7}") for word in permissions()]
        await limit_the_user(url, *rules)
        await Life(7, url).live(300)


# --- names ---------------------------------------------------------------------------------------
async def test_ties_are_broken_by_bytes_whatever_the_language(here: RedisIndex) -> None:
    users = ["a", "B", "é", "z", "Ω", "_", "日", "b|c", 'quo"te', "nul\0", "new\nline"]
    await here.configure(Catalog(TIERS, [plain(limit=0)]), 1)
    await here.put([job(f"j-{user}", user=user) for user in users], NOW)
    order = await names(here, len(users))
    assert order == [f"j-{user}" for user in sorted(users)], "all are overdue since the same time"


async def test_an_unknown_service_is_refused(here: RedisIndex) -> None:
    with pytest.raises(UnknownName):
        await here.put([job("one", service="nowhere")], NOW)


async def test_a_task_nobody_configured_is_of_the_default_kind(
    here: RedisIndex, there: RedisIndex
) -> None:
    tasks = catalog(task_defaults=plain("task"))
    await here.configure(tasks, 1)
    await here.put([job("one", service="fresh")], NOW)
    assert await names(there) == ["one"]
