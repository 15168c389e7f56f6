"""The generation queue as a new user meets it: `fairlane init --preset generation`, then
`fairlane serve`, and its tables of tiers, limits, timeouts, prices and states, line by line."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any

import httpx2
import pytest

from tests.cluster.fleet import comes_true
from tests.gateway.site import LONG_ENOUGH, Running, Site

PENDING_PER_HOUR_AND_DURATION = {
    "creator": (20, 60, 180),
    "premium": (10, 30, 120),
    "supporter": (5, 15, 60),
    "free": (2, 3, 30),
}
STARVATION_TIMEOUTS = {"admin": 30, "creator": 45, "premium": 60, "supporter": 90, "free": 120}
SKIP_PRICES = {1: 1, 10: 1, 11: 3, 30: 3, 31: 5, 60: 5, 61: 10, 120: 10, 121: 15, 180: 15}
BEST_FIRST = list(STARVATION_TIMEOUTS)


class Team:
    """A team that uses the queue: its web shop, its operator and its one GPU."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self._worker = ""

    async def member(self, tier: str, name: str = "") -> str:
        user = name or f"{tier}-user"
        answer = await self.http.put(f"/admin/users/{user}", json={"priority": tier})
        assert answer.status_code == 200, answer.text
        return user

    async def ask(self, user: str, model: str = "music", duration: float = 10) -> httpx2.Response:
        body = {"user_id": user, "model": model, "prompt": "rain on a roof", "duration": duration}
        return await self.http.post("/generate", json=body)

    async def generate(self, user: str, model: str = "music", duration: float = 10) -> str:
        answer = await self.ask(user, model, duration)
        assert answer.status_code == 202, answer.text
        accepted = answer.json()
        assert accepted["status"] == "queued"
        return str(accepted["job_id"])

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def cancel(self, job: str) -> None:
        answer = await self.http.delete(f"/generate/{job}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == "cancelled"

    async def grant(self, user: str, amount: int) -> None:
        grant = {"amount": amount, "operation_key": f"bought-by-{user}", "note": "bought"}
        answer = await self.http.post(f"/admin/users/{user}/credits", json=grant)
        assert answer.status_code == 200, answer.text

    async def start_gpu(self) -> None:
        offer = {"task_types": ["generate"], "capacity": 1}
        answer = await self.http.post("/internal/workers/register", json=offer)
        assert answer.status_code == 201, answer.text
        self._worker = answer.json()["worker_id"]

    async def picked(self) -> dict[str, Any]:
        """The job that the GPU gets next."""
        found = await self._report("poll", available_capacity=1)
        (task,) = found["tasks"]
        return dict(task)

    async def progress(self, task: dict[str, Any], percent: float, text: str = "") -> None:
        await self._report("progress", **_lease(task), percent=percent, text=text)

    async def finish(self, task: dict[str, Any]) -> None:
        await self._report("result", **_lease(task), status="completed", result={"url": "s3://a"})

    async def fail(self, task: dict[str, Any]) -> None:
        error = {"message": "the model rejects this prompt", "retriable": False}
        await self._report("result", **_lease(task), status="failed", error=error)

    async def _report(self, what: str, **body: Any) -> dict[str, Any]:
        path = f"/internal/workers/{self._worker}/{what}"
        answer = await self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def _lease(task: dict[str, Any]) -> dict[str, str]:
    return {"task_id": task["task_id"], "lease": task["lease"]}


@pytest.fixture
async def served(generation_site: Site) -> Running:
    """As in the guide: no keys, so the server accepts connections from this machine only."""
    del generation_site.variables["FAIRLANE_ADMIN_KEY"]
    return await generation_site.serve()


@pytest.fixture
async def team(served: Running) -> AsyncIterator[Team]:
    async with httpx2.AsyncClient(base_url=served.url, timeout=LONG_ENOUGH) as http:
        team = Team(http)
        await team.start_gpu()
        yield team


async def test_jobs_run_by_tier_and_in_order_of_arrival_within_a_tier(team: Team) -> None:
    users = {tier: await team.member(tier) for tier in BEST_FIRST}
    jobs: dict[str, list[str]] = {tier: [] for tier in BEST_FIRST}
    for tier in reversed(BEST_FIRST):
        for _ in range(2):
            jobs[tier].append(await team.generate(users[tier]))
    expected = [job for tier in BEST_FIRST for job in jobs[tier]]

    explorer = await team.get("/api/queue")
    assert [row["id"] for row in explorer["jobs"]] == expected
    assert [row["position"] for row in explorer["jobs"]] == list(range(1, 11))
    assert [row["priority"] for row in explorer["jobs"]] == [t for t in BEST_FIRST for _ in "12"]
    assert explorer["total"] == 10

    run = []
    for _ in expected:
        task = await team.picked()
        run.append(task["task_id"])
        await team.finish(task)
    assert run == expected


async def test_each_tier_has_its_pending_jobs(team: Team) -> None:
    for tier, (pending, _, _) in PENDING_PER_HOUR_AND_DURATION.items():
        user = await team.member(tier)
        jobs = [await team.generate(user) for _ in range(pending)]
        refused = await team.ask(user)
        _check_refused(refused, "too_many_pending", tier, limit=pending)
        assert refused.json()["error"] == "Queue limit reached for your tier"
        await team.cancel(jobs[0])
        await team.generate(user)
        assert (await team.ask(user)).status_code == 429
    admin = await team.member("admin")
    for _ in range(21):
        await team.generate(admin)


async def test_each_tier_has_its_generations_per_hour(team: Team) -> None:
    for tier, (_, per_hour, _) in PENDING_PER_HOUR_AND_DURATION.items():
        user = await team.member(tier)
        for _ in range(per_hour):
            await team.cancel(await team.generate(user))
        refused = await team.ask(user)
        _check_refused(refused, "too_many_this_hour", tier, limit=per_hour)
        first_frees = int(refused.headers["Retry-After"])
        assert 3_000 < first_frees <= 3_600


def _check_refused(answer: httpx2.Response, code: str, tier: str, limit: int) -> None:
    assert answer.status_code == 429, answer.text
    body = answer.json()
    assert (body["code"], body["tier"], body["limit"], body["left"]) == (code, tier, limit, 0)
    assert datetime.fromisoformat(body["frees_at"]).tzinfo is not None
    assert int(answer.headers["Retry-After"]) >= 1


async def test_each_tier_has_its_longest_duration(team: Team) -> None:
    for tier, (_, _, longest) in PENDING_PER_HOUR_AND_DURATION.items():
        user = await team.member(tier)
        await team.generate(user, duration=longest)
        refused = await team.ask(user, duration=longest + 0.5)
        assert refused.status_code == 422
        body = refused.json()
        assert body["error"] == "Duration exceeds your tier limit"
        assert (body["code"], body["tier"], body["limit"]) == ("duration_too_long", tier, longest)
    await team.generate(await team.member("admin"), duration=300)


async def test_the_whole_queue_has_a_hundred_places_for_every_tier(team: Team) -> None:
    for number in range(5):
        user = await team.member("creator", f"creator-{number}")
        await asyncio.gather(*(team.generate(user) for _ in range(20)))
    for tier in BEST_FIRST:
        refused = await team.ask(await team.member(tier))
        assert refused.status_code == 429, refused.text
        body = refused.json()
        assert body["error"] == "Queue is full"
        assert (body["code"], body["limit"], body["left"]) == ("queue_full", 100, 0)
        assert int(refused.headers["Retry-After"]) >= 1
    assert (await team.get("/queue-status"))["queue_length"] == 100


async def last_is(team: Team, model: str, jobs: int) -> bool:
    scheduler = (await team.get("/status"))["scheduler"]
    return bool((scheduler["last_model_used"], scheduler["batch_count"]) == (model, jobs))


async def test_status_shows_the_scheduler(team: Team) -> None:
    scheduler = (await team.get("/status"))["scheduler"]
    assert scheduler["starvation_timeouts"] == STARVATION_TIMEOUTS
    assert scheduler["max_batch_size"] == 3
    user = await team.member("creator")
    for model in ("music", "audio", "audio"):
        await team.generate(user, model)
    for expected in (("music", 1), ("audio", 1), ("audio", 2)):
        await team.finish(await team.picked())
        await comes_true(partial(last_is, team, *expected))  # told within a second
    waits = (await team.get("/status"))["estimated_wait"]
    assert set(waits) == {"music", "audio"}
    assert all(wait >= 0 for wait in waits.values())


async def test_a_job_starves_after_the_timeout_of_its_tier(team: Team) -> None:
    for tier, patience in STARVATION_TIMEOUTS.items():
        job = await team.generate(await team.member(tier))
        queued = datetime.fromisoformat((await team.get(f"/api/v1/jobs/{job}"))["queued_at"])
        explained = await team.get(f"/api/v1/jobs/{job}/explain")
        promotes = datetime.fromisoformat(explained["next_promotion_at"])
        assert (promotes - queued).total_seconds() == pytest.approx(patience, abs=0.01)


async def test_a_skip_costs_what_the_table_says(team: Team) -> None:
    user = await team.member("admin")
    for duration, price in SKIP_PRICES.items():
        job = await team.generate(user, duration=duration)
        quote = await team.get(f"/api/v1/jobs/{job}/skip")
        assert (quote["price"], quote["currency"]) == (price, "aura"), duration


async def test_a_skipped_job_is_next_but_does_not_interrupt(team: Team) -> None:
    admin, free = await team.member("admin"), await team.member("free")
    running = await team.generate(admin)
    task = await team.picked()
    waiting = await team.generate(admin)
    job = await team.generate(free, duration=30)

    assert (await team.http.post(f"/api/v1/jobs/{job}/skip")).status_code == 402
    await team.grant(free, 5)
    assert (await team.http.post(f"/api/v1/jobs/{job}/skip")).status_code == 200
    credits = await team.get(f"/api/v1/users/{free}/credits")
    assert credits["balance"] == 2

    rows = {row["id"]: row for row in (await team.get("/api/queue"))["jobs"]}
    assert rows[running]["status"] == "processing"
    assert (rows[job]["priority"], rows[job]["skipped"], rows[job]["position"]) == (
        "skipped",
        True,
        1,
    )
    assert rows[waiting]["position"] == 2
    (own,) = (await team.get("/queue-status", user_id=free))["jobs"]
    assert (own["skipped"], own["skip_cost"]) == (True, 3)

    assert (await team.http.post(f"/api/v1/jobs/{running}/skip")).status_code == 409
    await team.finish(task)
    assert (await team.picked())["task_id"] == job


async def test_a_job_goes_through_the_states_of_its_lifecycle(team: Team) -> None:
    user = await team.member("creator")

    async def status(job: str) -> str:
        return str((await team.get(f"/generate/{job}"))["status"])

    completed = await team.generate(user)
    assert await status(completed) == "queued"
    task = await team.picked()
    assert await status(completed) == "processing"
    await team.finish(task)
    assert await status(completed) == "completed"
    assert (await team.get(f"/generate/{completed}"))["result"] == {"url": "s3://a"}

    failed = await team.generate(user)
    await team.fail(await team.picked())
    assert await status(failed) == "failed"

    cancelled = await team.generate(user)
    await team.cancel(cancelled)
    assert await status(cancelled) == "cancelled"
    for ended in (completed, failed):
        assert (await team.http.delete(f"/generate/{ended}")).status_code == 409


async def test_the_answers_have_the_documents_shapes(team: Team) -> None:
    user = await team.member("premium")
    job = await team.generate(user, duration=30)
    await team.generate(user)
    task = await team.picked()
    await team.progress(task, 45)

    public = await team.get("/queue-status")
    assert (public["queue_length"], public["current_job"]) == (1, job)
    first = public["jobs"][0]
    assert (first["id"], first["status"], first["model"]) == (job, "processing", "music")

    explorer = await team.get("/api/queue")
    row = explorer["jobs"][0]
    shown = ("id", "status", "model", "duration", "priority", "progress", "progress_pct")
    expected = (job, "processing", "music", 30, "premium", "Generating... 45%", 45)
    assert tuple(row[name] for name in shown) == expected
    assert isinstance(row["position"], int)
    assert explorer["total"] == 2

    await team.progress(task, 50, "half of the bars")
    (row, _) = (await team.get("/api/queue"))["jobs"]
    assert (row["progress"], row["progress_pct"]) == ("half of the bars", 50)


async def test_init_writes_the_documents_settings(generation_site: Site) -> None:
    written = tomllib.loads((generation_site.folder / "fairlane.toml").read_text())
    assert written["limits"]["waiting"] == 100
    assert written["limits"]["keep_finished"] == 3_600
    assert written["limits"]["cleanup_interval"] == 300
    assert "generate" in await generation_site.run("check")
