"""Paid skips over HTTP, at every door of the queue: charged once, never below zero, and no more
than their share of the capacity (I14)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx2
import pytest

from tests.gateway.site import ADMIN, LONG_ENOUGH, Running, Site

SKIPS, DEPOSIT, PICKS = 500, 100, 40
MOST_SAVED_GRANTS = 4
"""How many skips may have saved up for, when none of them could start."""

pytestmark = pytest.mark.timeout(300)


class Crowd:
    """One key at every door, with as many connections as it wants."""

    def __init__(self, doors: list[Running]) -> None:
        self._doors = [
            httpx2.AsyncClient(
                base_url=door.url,
                headers={"Authorization": f"Bearer {ADMIN}"},
                timeout=LONG_ENOUGH,
                limits=httpx2.Limits(max_connections=None),
            )
            for door in doors
        ]

    async def __aenter__(self) -> Crowd:
        return self

    async def __aexit__(self, *_: object) -> None:
        for door in self._doors:
            await door.aclose()

    async def send(self, method: str, path: str, sent: Any = None, door: int = 0) -> Any:
        """The answer of a door that was not overloaded."""
        client = self._doors[door % len(self._doors)]
        while True:
            answer = await client.request(method, path, json=sent)
            if answer.status_code != 503:
                return answer

    async def skip_all(self, jobs: list[str]) -> list[Any]:
        """All at once, at the doors in turn."""
        paths = (f"/api/v1/jobs/{job}/skip" for job in jobs)
        return await asyncio.gather(
            *(self.send("POST", path, door=number) for number, path in enumerate(paths))
        )

    async def statement(self, user: str) -> list[Any]:
        entries: list[Any] = []
        path = f"/api/v1/users/{user}/statement?limit=200"
        cursor = ""
        while True:
            page = (await self.send("GET", path + cursor, door=len(entries))).json()
            entries += page["entries"]
            if page["next"] is None:
                assert sum(entry["amount"] for entry in entries) == page["balance"]
                return entries
            cursor = f"&cursor={page['next']}"


@pytest.fixture
async def doors(site: Site) -> list[Running]:
    """Of a queue with one pulled service, first come, first served."""
    site.set("services.generate", executor="pull", fairness="none", max_attempts=1)
    first = await site.serve()
    return [first, await site.other_door(first)]


async def test_five_hundred_skips_at_once_spend_one_balance_and_keep_their_share(
    doors: list[Running],
) -> None:
    """I14: 100 credits buy 100 of 500 skips. While other jobs wait, the paid ones get half of the
    starts and no more than they had saved. A cancelled one is refunded."""
    async with Crowd(doors) as crowd:
        await grant(crowd, "ada")
        jobs = await submitted(crowd, "ada")
        answers = await crowd.skip_all(jobs)
        assert Counter(answer.status_code for answer in answers) == {200: DEPOSIT, 402: 400}
        paid = {job for job, answer in zip(jobs, answers, strict=True) if answer.status_code == 200}
        balances = [answer.json()["balance"] for answer in answers if answer.status_code == 200]
        assert sorted(balances) == list(range(DEPOSIT))
        entries = await crowd.statement("ada")
        assert {entry["job_id"] for entry in entries} == {*paid, None}
        assert [entry["balance"] for entry in entries] == [*range(DEPOSIT), DEPOSIT]

        started = await worked(crowd, PICKS)
        skips = len(paid & {*started})
        assert PICKS // 2 - MOST_SAVED_GRANTS <= skips <= PICKS // 2 + MOST_SAVED_GRANTS

        waiting = min(paid - {*started})
        for door in range(2):
            await crowd.send("DELETE", f"/api/v1/jobs/{waiting}", door=door)
        newest = (await crowd.statement("ada"))[0]
        assert (newest["kind"], newest["job_id"], newest["balance"]) == ("refund", waiting, 1)


async def test_five_hundred_skips_of_one_job_and_grants_of_one_key_are_booked_once(
    doors: list[Running],
) -> None:
    """I14: whichever door they come through."""
    async with Crowd(doors) as crowd:
        await asyncio.gather(*(grant(crowd, "bob", door) for door in range(50)))
        job = (await submitted(crowd, "bob", 1))[0]
        answers = await crowd.skip_all([job] * SKIPS)
        assert {answer.status_code for answer in answers} == {200}
        assert sum(answer.json()["price"] for answer in answers) == 1
        kinds = [(entry["kind"], entry["amount"]) for entry in await crowd.statement("bob")]
        assert kinds == [("payment", -1), ("grant", DEPOSIT)]


async def test_skips_and_cancels_at_once_leave_a_balance_that_the_jobs_explain(
    doors: list[Running],
) -> None:
    """I14: each job is skipped and cancelled through both doors at once. A cancelled job costs
    nothing, whichever came first."""
    async with Crowd(doors) as crowd:
        await grant(crowd, "cyd")
        jobs = await submitted(crowd, "cyd", 60)
        cancels = (
            crowd.send("DELETE", f"/api/v1/jobs/{job}", door=number)
            for number, job in enumerate([*jobs, *jobs])
        )
        await asyncio.gather(crowd.skip_all([*jobs, *jobs]), *cancels)
        entries = await crowd.statement("cyd")
        moved = Counter(entry["job_id"] for entry in entries if entry["kind"] == "payment")
        back = Counter(entry["job_id"] for entry in entries if entry["kind"] == "refund")
        assert moved == back
        assert entries[0]["balance"] == DEPOSIT


async def grant(crowd: Crowd, user: str, door: int = 0) -> None:
    sent = {"amount": DEPOSIT, "operation_key": "deposit"}
    answer = await crowd.send("POST", f"/admin/users/{user}/credits", sent, door)
    assert answer.status_code == 200, answer.text


async def submitted(crowd: Crowd, user: str, number: int = SKIPS) -> list[str]:
    wishes = [{"feature_name": "generate", "user_id": user, "duration": 5}] * number
    answer = await crowd.send("POST", "/api/v1/jobs:batch", {"jobs": wishes})
    return [each["job"]["job_id"] for each in answer.json()["results"]]


async def worked(crowd: Crowd, number: int) -> list[str]:
    """The jobs that one worker ran, one after the other."""
    registered = await crowd.send("POST", "/internal/workers/register", {"capacity": 1})
    path = f"/internal/workers/{registered.json()['worker_id']}"
    started: list[str] = []
    while len(started) < number:
        polled = await crowd.send("POST", f"{path}/poll", {"available_capacity": 1})
        for task in polled.json()["tasks"]:
            started.append(task["task_id"])
            ended = {"task_id": task["task_id"], "lease": task["lease"], "status": "completed"}
            answer = await crowd.send("POST", f"{path}/result", ended)
            assert answer.status_code == 200, answer.text
    return started
