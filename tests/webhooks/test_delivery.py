"""I24, S20: the news that a job has ended reaches who asked for it, at least once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlane.api.auth.key_format import new_key
from fairlane.engine.submit import Caller
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.key import Key, Role
from fairlane.model.service import Fairness, Service
from fairlane.units import SECOND
from fairlane.webhooks import SsrfGuard, WebhookSender, secret_of
from fairlane.webhooks.sender import SCHEDULE
from fairlane.webhooks.signature import signed
from tests.core import core_of
from tests.webhooks.receiver import Receiver
from tests.world import World, catalog


class Scene:
    def __init__(self, world: World, receiver: Receiver, sender: WebhookSender) -> None:
        self.world, self.receiver, self.sender = world, receiver, sender

    async def end(self, job: str) -> None:
        lease = await self.world.claim_one()
        assert lease.job == job
        await self.world.engine.complete(lease, {"large": "result"})

    async def send(self) -> int:
        """One round; how many were due. All of them have been tried when it returns."""
        begun = await self.sender.send_due()
        await self.sender.idle()
        return begun

    async def outcomes(self) -> list[str | None]:
        """How every webhook stands, oldest first."""
        ledger = core_of(self.world.engine).ledger
        return [outcome for _, outcome in await ledger.webhooks.listed(100)]


@asynccontextmanager
async def scene(path: Path, egress: SsrfGuard | None = None) -> AsyncIterator[Scene]:
    """Webhooks are sent when the test says so."""
    settings = catalog(Service("work", fairness=Fairness.NONE, max_attempts=1))
    async with Receiver().serving() as receiver, World(settings, path / "db") as world:
        egress = egress or SsrfGuard(development=True)
        yield Scene(world, receiver, WebhookSender(world.engine, egress, seed=1))


async def test_the_end_of_a_job_is_told_signed_and_without_its_result(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        job = await at.world.submit(
            user="ada", tags=("a",), callback=at.receiver.url, caller=Caller("acme", "key")
        )
        assert await at.send() == 0, "nothing has ended yet"
        await at.end(job)
        assert await at.send() == 1
        (heard,) = at.receiver.heard
        assert heard.type == "job.completed"
        assert heard.data == {
            "job_id": job,
            "status": "completed",
            "feature_name": "work",
            "user_id": "ada",
            "finished_at": "2023-11-14T22:13:20.000Z",
            "tags": ["a"],
            "error": None,
        }
        assert b"large" not in heard.body
        now = at.world.clock.now() // SECOND
        secret = await secret_of(at.world.engine, "acme")
        expected = signed(heard.id, now, heard.body, [secret])
        assert {name: heard.headers[name] for name in expected} == expected
        assert await at.outcomes() == ["delivered"]
        await at.world.pass_time(100_000)
        assert await at.send() == 0


async def test_every_way_to_end_is_told(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        url, engine = at.receiver.url, at.world.engine
        failed = await at.world.submit(callback=url)
        await engine.fail(await at.world.claim_one(), Fault.INVALID_INPUT, "too long")
        dead = await at.world.submit(callback=url)
        await engine.fail(await at.world.claim_one(), Fault.TRANSIENT, "lost")
        cancelled = await at.world.submit(callback=url)
        await engine.cancel(cancelled)
        tired = await at.world.submit(callback=url, max_wait=SECOND)
        await at.world.pass_time(2)
        fan_out = await at.world.submit(callback=url, matrix={"x": ("1", "2")})
        for lease in await at.world.claim(2):
            await engine.complete(lease)
        silent = await at.world.submit()
        await engine.cancel(silent)
        assert await at.send() == 5
        told = {heard.data["job_id"]: heard for heard in at.receiver.heard}
        assert {job: heard.type for job, heard in told.items()} == {
            failed: "job.failed",
            dead: "job.dead",
            cancelled: "job.cancelled",
            tired: "job.failed",
            fan_out: "job.completed",
        }
        assert told[failed].data["error"] == {
            "code": "INVALID_INPUT",
            "message": "too long",
            "resumable": False,
        }
        assert told[tired].data["error"]["resumable"] is True


async def test_what_is_owed_survives_a_crash_and_so_does_what_was_being_sent(
    tmp_path: Path,
) -> None:
    """The row is written with the end of the job. Who dies while sending is followed by another
    after a minute, under the same id."""
    async with scene(tmp_path) as at:
        await at.end(await at.world.submit(callback=at.receiver.url))
        await at.world.restart()
        now = at.world.clock.now()
        (held,) = await core_of(at.world.engine).ledger.webhooks.due(now, now + 60 * SECOND, 10)
        await at.world.restart()
        at.sender = WebhookSender(at.world.engine, SsrfGuard(development=True), seed=1)
        assert await at.send() == 0
        await at.world.pass_time(60)
        assert await at.send() == 1
        assert at.receiver.heard[0].id == held.id


async def test_what_is_due_longest_is_handed_out_first(tmp_path: Path) -> None:
    """Whatever order the rows stand in: by the time they have been due since, then by their ids."""
    async with scene(tmp_path) as at:
        webhooks = core_of(at.world.engine).ledger.webhooks
        jobs = await at.world.submit_all([NewJob("work", callback=at.receiver.url)] * 6)
        for job in jobs:
            await at.end(job)
        now = at.world.clock.now()
        found = await webhooks.due(now, now, 10)
        assert [each.job for each in found] == jobs
        for n in (2, 0, 4, 1):
            at.world.clock.advance(1)
            await webhooks.again(found[n].id, 1, at.world.clock.now())
        late = await webhooks.due(at.world.clock.now(), at.world.clock.now() + 1, 5)
        assert [each.job for each in late] == [jobs[n] for n in (3, 5, 2, 0, 4)]


async def test_a_job_that_ends_twice_is_told_twice_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.receiver.status = 500
        job = await at.world.submit(callback=at.receiver.url, max_wait=SECOND)
        await at.world.pass_time(2)
        assert await at.send() == 1
        await at.world.engine.resume(job)
        await at.end(job)
        assert await at.send() == 0, "the second waits for the first"
        at.receiver.status = 200
        await at.world.pass_time(6)
        assert await at.send() == 1
        assert await at.send() == 1
        assert [heard.type for heard in at.receiver.heard] == [
            "job.failed",
            "job.failed",
            "job.completed",
        ]
        first, again, second = (heard.id for heard in at.receiver.heard)
        assert first == again != second
        assert at.receiver.heard[0].body == at.receiver.heard[1].body


async def test_a_receiver_that_is_away_is_tried_again_for_days(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        at.receiver.status = 503
        await at.end(await at.world.submit(callback=at.receiver.url))
        for delay in SCHEDULE:
            assert await at.send() == 1
            await at.world.pass_time((delay - 1) / SECOND)
            assert await at.send() == 0
            await at.world.pass_time(delay * 0.1 / SECOND + 1)
        assert await at.send() == 1
        await at.world.pass_time(1_000_000)
        assert await at.send() == 0
        assert len(at.receiver.heard) == 10
        assert len({heard.id for heard in at.receiver.heard}) == 1
        assert await at.outcomes() == ["failed"]


async def test_a_receiver_that_wants_no_more_gets_no_more(tmp_path: Path) -> None:
    """410: not this one again, and no other one of that tenant to that address."""
    async with scene(tmp_path) as at:
        at.receiver.status = 410
        await at.end(await at.world.submit(callback=at.receiver.url))
        assert await at.send() == 1
        await at.end(await at.world.submit(callback=at.receiver.url))
        assert await at.send() == 0
        assert await at.outcomes() == ["gone", "gone"]
        other = await at.world.submit(callback=at.receiver.url, caller=Caller("another", "key"))
        await at.end(other)
        assert await at.send() == 1


@pytest.mark.embedded
@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 500])
async def test_only_a_2xx_is_a_delivery_and_redirects_are_not_followed(
    tmp_path: Path, status: int
) -> None:
    async with scene(tmp_path) as at, Receiver().serving() as elsewhere:
        at.receiver.status, at.receiver.location = status, elsewhere.url
        await at.end(await at.world.submit(callback=at.receiver.url))
        await at.send()
        assert len(at.receiver.heard) == 1
        assert not elsewhere.heard
        assert await at.outcomes() == [None]


@pytest.mark.embedded
async def test_nobody_connects_to_an_address_that_is_not_public(tmp_path: Path) -> None:
    """The name was public when the job was submitted; it is checked again at every delivery."""
    answers = [["93.184.215.14"], ["127.0.0.1"]]

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with scene(tmp_path, SsrfGuard(resolve=rebinding)) as at:
        url = "https://rebind.example.com/hook"
        egress = SsrfGuard(resolve=rebinding)
        assert await egress.addresses(egress.check(url))
        await at.end(await at.world.submit(callback=url))
        await at.end(await at.world.submit(callback=at.receiver.url))
        assert await at.send() == 2
        assert await at.outcomes() == ["blocked", "blocked"]
        assert not at.receiver.heard


async def test_the_development_mode_ends_with_the_first_key(tmp_path: Path) -> None:
    """S12: also for what was accepted while everybody was a developer."""
    async with scene(tmp_path) as at:
        await at.end(await at.world.submit(callback=at.receiver.url))
        await at.send()
        await at.end(await at.world.submit(callback=at.receiver.url))
        key, _ = new_key(Key("", "acme", Role.CLIENT, "", created_at=0))
        await core_of(at.world.engine).ledger.keys.add(key, "test")
        await at.send()
        assert await at.outcomes() == ["delivered", "blocked"]
        assert len(at.receiver.heard) == 1


@pytest.mark.embedded
async def test_a_sender_looks_by_itself(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.end(await at.world.submit(callback=at.receiver.url))
        async with at.sender:
            await at.receiver.hears(1)
        assert await at.outcomes() == ["delivered"]


async def test_two_senders_do_not_send_the_same_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        for _ in range(20):
            await at.end(await at.world.submit(callback=at.receiver.url))
        other = WebhookSender(at.world.engine, SsrfGuard(development=True), seed=2)
        begun = await asyncio.gather(at.sender.send_due(), other.send_due())
        await at.sender.idle()
        await other.idle()
        assert sum(begun) == 20
        assert len({heard.id for heard in at.receiver.heard}) == len(at.receiver.heard) == 20


async def test_what_is_over_is_forgotten_after_a_week(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        webhooks = core_of(at.world.engine).ledger.webhooks
        for _ in range(3):
            await at.end(await at.world.submit(callback=at.receiver.url))
        await at.send()
        at.receiver.status = 500
        await at.end(await at.world.submit(callback=at.receiver.url))
        await at.send()
        assert await webhooks.forget(at.world.clock.now() - 1, 10) == 0
        assert await webhooks.forget(at.world.clock.now(), 2) == 2
        assert await webhooks.forget(at.world.clock.now(), 2) == 1
        assert await at.outcomes() == [None], "what is still owed stays"
