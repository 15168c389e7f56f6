"""The load of a soak: submits at a constant rate with ever new users, followers, cancels, a
dashboard and reads of metrics."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import aiohttp

from tests.chaos.system import ADMIN

JOBS_PER_USER = 20
FOLLOWED, CANCELLED, PULLED = 18, 19, 12
"""Of 20 submits in a row, one is followed to its end, one is cancelled, six are pulled by a worker.
The other ones are called."""

FAILING = 50
"""One job of so many fails."""

READ_SECONDS = 15.0
WAITING_AT_MOST = 200
LOOK_SECONDS = 0.1
ANSWER_SECONDS = 30.0
CALLERS = 16


class SoakLoad:
    """An asynchronous context manager. `answers` counts the statuses of the submits; 0 is a
    connection that was lost."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._numbers = itertools.count()
        self.answers: Counter[int] = Counter()
        self.frames = 0
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> SoakLoad:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {ADMIN}"},
            connector=aiohttp.TCPConnector(limit=64),
            timeout=aiohttp.ClientTimeout(ANSWER_SECONDS),
        )
        self._background = [asyncio.create_task(self._watch()), asyncio.create_task(self._read())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*self._running)
        await self._session.close()

    @property
    def accepted(self) -> int:
        return self.answers[202]

    async def constant(self, rate: float, seconds: float) -> None:
        """Submits at random times, so many a second on average, whether or not earlier ones are
        answered."""
        chance, loop = Random(1), asyncio.get_running_loop()
        begin = due = loop.time()
        while due - begin < seconds:
            await asyncio.sleep(max(0.0, due - loop.time()))
            task = asyncio.create_task(self._act())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            due += chance.expovariate(rate)
        await asyncio.gather(*self._running)

    async def as_fast_as_possible(
        self, seconds: float, live_jobs: Callable[[], Awaitable[int]]
    ) -> float:
        """How many jobs end in a second, while there are always some that wait."""
        may_submit = asyncio.Event()
        may_submit.set()

        async def submit() -> None:
            while True:
                await may_submit.wait()
                await self._act()

        callers = [asyncio.create_task(submit()) for _ in range(CALLERS)]
        loop = asyncio.get_running_loop()
        begin = counted_from = loop.time()
        ended_before = 0
        while (now := loop.time()) - begin < seconds:
            live = await live_jobs()
            if now - begin < seconds / 4:  # until everything is connected
                ended_before, counted_from = self.accepted - live, now
            if live < WAITING_AT_MOST:
                may_submit.set()
            else:
                may_submit.clear()
            await asyncio.sleep(LOOK_SECONDS)
        ended = self.accepted - await live_jobs() - ended_before
        rate = ended / (loop.time() - counted_from)
        if ended <= 0:
            raise RuntimeError(f"no job has ended; the submits were answered {dict(self.answers)}")
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        return rate

    async def _act(self) -> None:
        n = next(self._numbers)
        url, kind = self._urls[n % len(self._urls)], n % 20
        body = {
            "feature_name": "pulled" if kind >= PULLED else "called",
            "user_id": f"user-{n // JOBS_PER_USER}",
            "input_data": {"text": "x" * 100, "fails": n % FAILING == 0},
        }
        headers = {"Idempotency-Key": f"soak-{n}"} if n % 2 else {}
        try:
            async with self._session.post(
                f"{url}/api/v1/jobs", json=body, headers=headers
            ) as answer:
                self.answers[answer.status] += 1
                found = await answer.json()
            if answer.status == 202:
                await self._after(kind, f"{url}/api/v1/jobs/{found['job_id']}")
        except (aiohttp.ClientError, TimeoutError):
            self.answers[0] += 1

    async def _after(self, kind: int, job: str) -> None:
        if kind == FOLLOWED:
            headers = {"Accept": "text/event-stream"}
            async with self._session.get(f"{job}/events", headers=headers) as events:
                async for _ in events.content:
                    pass
        elif kind == CANCELLED:
            async with self._session.delete(job) as answer:
                await answer.read()

    async def _watch(self) -> None:
        """A dashboard that is open all the time."""
        while True:
            with suppress(aiohttp.ClientError):
                async with self._session.ws_connect(f"{self._urls[0]}/ws") as socket:
                    async for _ in socket:
                        self.frames += 1
            await asyncio.sleep(1)

    async def _read(self) -> None:
        """What monitoring reads."""
        for url in itertools.cycle(self._urls):
            for path in ("/metrics", "/api/v1/queue/stats", "/readyz"):
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with self._session.get(url + path) as answer:
                        await answer.read()
            await asyncio.sleep(READ_SECONDS)
