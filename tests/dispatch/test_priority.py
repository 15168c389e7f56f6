"""Who has which tier, also while the Priority Service is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fairlane import priority
from fairlane.demo.priority_service import DemoPriorityService
from fairlane.errors import InvalidInput, SetupError, UnknownName
from fairlane.ledger.messages import Replayed
from fairlane.model.job import NewJob
from fairlane.priority import PriorityService
from tests.core import core_of
from tests.world import World, catalog

only_http = pytest.mark.embedded
"""What the stores are makes no difference here."""


@asynccontextmanager
async def asking(
    path: Path, timeout: float = 10
) -> AsyncIterator[tuple[World, DemoPriorityService, PriorityService]]:
    async with (
        DemoPriorityService({"ada": "high", "linus": "low"}).serving() as source,
        World(catalog(), path / "db") as world,
        PriorityService(world.engine, source.url, timeout=timeout) as service,
    ):
        yield world, source, service


async def tier_of(world: World, user: str) -> str:
    return (await world.job(await world.submit(user=user))).tier


async def test_a_job_gets_the_tier_that_its_user_has_there(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        assert await tier_of(world, "ada") == "high"
        assert await tier_of(world, "linus") == "low"
        assert await tier_of(world, "nobody") == "medium"
        await tier_of(world, "nobody")
        assert source.asked == ["ada", "linus", "nobody"]
        source.tiers["o'neil/../ada"] = "high"
        assert await tier_of(world, "o'neil/../ada") == "high"
        assert source.asked[-1] == "o'neil/../ada"


@only_http
async def test_a_tier_in_the_request_is_not_asked_for(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        job = await world.submit(user="ada", tier="low")
        assert (await world.job(job)).tier == "low"
        assert not source.asked


@only_http
async def test_an_answer_is_good_for_a_minute(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        await tier_of(world, "ada")
        source.tiers["ada"] = "low"
        await world.pass_time(59)
        assert await tier_of(world, "ada") == "high"
        await world.pass_time(2)
        assert await tier_of(world, "ada") == "low"
        assert source.asked == ["ada", "ada"]


async def test_during_an_outage_everybody_keeps_their_tier_also_after_a_restart(
    tmp_path: Path,
) -> None:
    """S9: and nobody is lifted, not even by being unknown."""
    async with asking(tmp_path) as (world, source, _):
        assert [await tier_of(world, user) for user in ("ada", "linus")] == ["high", "low"]
        source.down = True
        await world.pass_time(10_000)
        assert [await tier_of(world, user) for user in ("ada", "linus")] == ["high", "low"]
        await world.restart()
        async with PriorityService(world.engine, source.url):
            assert [await tier_of(world, user) for user in ("ada", "linus")] == ["high", "low"]
            assert await tier_of(world, "never seen") == "medium"
            await world.engine.set_tier("stored", "low")
            assert await tier_of(world, "stored") == "low"
            source.down = False
            source.tiers["ada"] = "medium"
            await world.pass_time(10)
            assert await tier_of(world, "ada") == "medium"


@only_http
async def test_a_service_that_does_not_answer_is_waited_for_no_longer_than_its_limit(
    tmp_path: Path,
) -> None:
    """After three in a row nobody is asked for five seconds: a submit must not wait for it."""
    async with asking(tmp_path, timeout=0.5) as (world, source, _):
        source.gate.clear()
        for user in ("a", "b", "c", "d", "e"):
            assert await tier_of(world, user) == "medium"
        assert source.asked == ["a", "b", "c"]
        source.gate.set()
        await world.pass_time(5)
        source.tiers["f"] = "high"
        assert await tier_of(world, "f") == "high"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Since the last look."""
    found = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    caplog.clear()
    return found


@only_http
@pytest.mark.parametrize("silent", [False, True], ids=["503", "silent"])
async def test_an_outage_is_logged_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, silent: bool
) -> None:
    async with asking(tmp_path, timeout=0.5) as (world, source, _):
        source.down = True
        if silent:
            source.gate.clear()
        for number in range(20):
            await tier_of(world, f"user {number}")
            await world.pass_time(1)
        assert warnings(caplog) == [
            "the Priority Service does not answer: the last known tiers hold"
        ]
        source.down = False
        source.gate.set()
        await world.pass_time(10)
        for number in range(3):
            await tier_of(world, f"other {number}")
        (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
        assert line.__dict__["fields"]["away_seconds"] >= 20
        assert warnings(caplog) == ["the Priority Service answers again"]


@only_http
async def test_a_tier_that_is_not_configured_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(tmp_path) as (world, source, _):
        source.tiers.update({f"user {number}": "gold" for number in range(4)})
        for number in range(4):
            await tier_of(world, f"user {number}")
            await tier_of(world, "ada")
            await world.pass_time(6)
        assert warnings(caplog) == ["the Priority Service names a tier that is not configured"]
        await world.pass_time(60)
        await tier_of(world, "user 0")
        assert len(warnings(caplog)) == 1


@only_http
async def test_a_tier_that_is_not_configured_changes_nothing(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        await tier_of(world, "ada")
        await world.pass_time(61)
        for nonsense in ("gold", "", 7, None):
            source.tiers["ada"] = nonsense  # type: ignore[assignment]
            assert await tier_of(world, "ada") == "high"


async def test_a_user_it_no_longer_knows_keeps_their_tier_also_after_a_restart(
    tmp_path: Path,
) -> None:
    """S9: a 404 names no tier, whoever sent it."""
    async with asking(tmp_path) as (world, source, _):
        assert await tier_of(world, "ada") == "high"
        source.tiers.clear()
        await world.pass_time(61)
        assert await tier_of(world, "ada") == "high"
        source.down = True
        await world.pass_time(61)
        assert await tier_of(world, "ada") == "high"
        await world.restart()
        source.down = False
        async with PriorityService(world.engine, source.url):
            assert await tier_of(world, "ada") == "high"


async def test_the_fallback_is_not_remembered_as_what_it_said(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        known = core_of(world.engine).ledger.known_tiers
        assert await tier_of(world, "zoe") == "medium"
        assert await known.get("default", ["zoe"]) == {}
        await world.engine.set_tier("zoe", "low")
        await world.pass_time(61)
        assert await tier_of(world, "zoe") == "low"
        source.tiers["zoe"] = "low"
        await world.pass_time(61)
        assert await tier_of(world, "zoe") == "low"
        assert await known.get("default", ["zoe"]) == {"zoe": "low"}


@asynccontextmanager
async def saying(*pieces: bytes) -> AsyncIterator[str]:
    """A service that answers in these pieces, a segment each: one is sent when the one before it
    has long left."""
    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        with suppress(ConnectionError):  # who has heard enough hangs up
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                for _ in range(100):
                    await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*answering)


@only_http
@pytest.mark.parametrize(
    ("pieces", "tier"),
    [
        ((b'{"priority":', b' "hi', b'gh"}'), "high"),
        ((b'{"priority": "high"}', b" " * priority.MAX_ANSWER_BYTES), "medium"),
    ],
    ids=["in pieces", "too long"],
)
async def test_an_answer_is_read_to_its_end_unless_that_is_too_far(
    tmp_path: Path, pieces: tuple[bytes, ...], tier: str
) -> None:
    async with (
        saying(*pieces) as url,
        World(catalog(), tmp_path / "db") as world,
        PriorityService(world.engine, url, timeout=10),
    ):
        assert await tier_of(world, "ada") == tier


@only_http
async def test_many_who_want_to_know_the_same_share_one_request(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        source.gate.clear()
        waiting = [asyncio.create_task(tier_of(world, "ada")) for _ in range(20)]
        impatient = waiting.pop()
        while not source.asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        impatient.cancel()
        with suppress(asyncio.CancelledError):
            await impatient
        source.gate.set()
        assert set(await asyncio.gather(*waiting)) == {"high"}
        assert source.asked == ["ada"]


@only_http
async def test_a_batch_asks_for_all_of_its_users_at_once(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        source.gate.clear()
        jobs = [NewJob("work", user=f"u{n % 10}") for n in range(50)]
        submitting = asyncio.create_task(world.engine.submit_many(jobs))
        while len(source.asked) < 10:  # noqa: ASYNC110
            await asyncio.sleep(0)
        source.gate.set()
        await submitting
        assert sorted(source.asked) == sorted(f"u{n}" for n in range(10))


async def test_an_idempotency_key_holds_though_the_tier_has_changed(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        job = NewJob("work", user="ada", idempotency_key="once")
        first = await world.engine.submit(job)
        source.tiers["ada"] = "low"
        await world.pass_time(61)
        again = await world.engine.submit(job)
        assert isinstance(again, Replayed)
        assert again.job == first.job


@only_http
async def test_names_that_no_address_can_carry_are_not_asked_for(tmp_path: Path) -> None:
    async with asking(tmp_path) as (world, source, _):
        assert await tier_of(world, "..") == "medium"
        for bad in ("\0", "\ud800"):
            with pytest.raises(InvalidInput):
                await world.submit(user=bad)
        assert not source.asked


@pytest.fixture
def _small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "MAX_CACHED_USERS", 5)


@pytest.mark.usefixtures("_small_cache")
async def test_only_so_many_answers_are_kept_in_memory_and_the_rest_in_the_ledger(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as (world, source, service):
        for n in range(10):
            source.tiers[f"u{n}"] = "high"
            await tier_of(world, f"u{n}")
        assert len(service._answers) == 5  # noqa: SLF001
        source.down = True
        assert await tier_of(world, "u0") == "high"


@only_http
async def test_its_settings_are_checked_at_the_start(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "db") as world:
        with pytest.raises(SetupError):
            PriorityService(world.engine, "priority-service:8000")
        with pytest.raises(UnknownName):
            PriorityService(world.engine, "http://127.0.0.1", fallback="gold")
