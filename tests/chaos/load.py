"""The clients of a chaos run. They write every request and its answer."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2

from tests.chaos.history import HistoryWriter
from tests.chaos.plan import Act

ANSWER_SECONDS = 10.0
TRIES = 40
RETRY_PAUSE_SECONDS = 0.5
STREAM_SECONDS = 30.0
AGAIN = frozenset({0, 408, 500, 502, 503, 504})
"""Statuses after which the same request is sent again, with the same key. 0 = no answer."""


class ChaosClient:
    """Acts as its plan says, at one API or the other."""

    def __init__(self, name: str, urls: list[str], key: str, history: HistoryWriter) -> None:
        self._name, self._history = name, history
        headers = {"Authorization": f"Bearer {key}"}
        self._apis = [
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=ANSWER_SECONDS)
            for url in urls
        ]
        self._numbers = itertools.count()
        self._jobs: list[str] = []
        self._streams: set[asyncio.Task[None]] = set()

    async def run(self, plan: Iterator[Act], until: asyncio.Event) -> None:
        """Until the event is set, and what was begun then is over."""
        for act in plan:
            with suppress(TimeoutError):
                async with asyncio.timeout(act.pause):
                    await until.wait()
            if until.is_set():
                break
            await self._act(act)
        await asyncio.gather(*self._streams)
        for api in self._apis:
            await api.aclose()

    async def _act(self, act: Act) -> None:
        operation = f"{self._name}-{next(self._numbers)}"
        match act.op:
            case "submit" | "fan_out":
                await self._submit(operation, act.body, act.share)
            case "twins":
                await asyncio.gather(
                    self._submit(operation, act.body, 0.0), self._submit(operation, act.body, 0.9)
                )
            case "batch":
                await self._submit_batch(operation, act.body["jobs"], act.share)
            case _ if not self._jobs:
                pass
            case "stream":
                self._streams.add(asyncio.create_task(self._follow(operation, self._job(act))))
            case _:
                await self._change(act.op, operation, self._job(act), act.share)

    def _job(self, act: Act) -> str:
        """One of the latest jobs."""
        latest = self._jobs[-12:]
        return latest[int(act.share * len(latest))]

    async def _submit(self, operation: str, body: dict[str, Any], share: float) -> None:
        sent = {**body, "tags": [operation]}
        await self._send("submit", operation, share, "POST", "/api/v1/jobs", sent)

    async def _submit_batch(self, operation: str, jobs: list[dict[str, Any]], share: float) -> None:
        sent = [{**job, "tags": [f"{operation}.{n}"]} for n, job in enumerate(jobs)]
        await self._send("submit", operation, share, "POST", "/api/v1/jobs:batch", {"jobs": sent})

    async def _change(self, op: str, operation: str, job: str, share: float) -> None:
        method, path = {
            "cancel": ("DELETE", f"/api/v1/jobs/{job}"),
            "skip": ("POST", f"/api/v1/jobs/{job}/skip"),
            "resume": ("POST", f"/api/v1/jobs/{job}/resume"),
            "get": ("GET", f"/api/v1/jobs/{job}"),
        }[op]
        body: dict[str, Any] | None = {} if op == "skip" else None
        await self._send(op, operation, share, method, path, body, job)

    async def _send(
        self,
        op: str,
        operation: str,
        share: float,
        method: str,
        path: str,
        body: Any = None,
        job: str = "",
    ) -> None:
        """Sends it, with one idempotency key, until there is an answer that is final."""
        key = {} if method == "GET" else {"Idempotency-Key": operation}
        first = int(share * len(self._apis))
        for n in range(TRIES):
            api = self._apis[(first + n) % len(self._apis)]
            request = f"{operation}/{first}/{n}"
            self._history.note("request", id=request, op=op, operation=operation, job=job)
            status, answer = await self._ask(api, method, path, body, key)
            self._answered(request, operation, status, answer)
            if status not in AGAIN:
                return
            await asyncio.sleep(RETRY_PAUSE_SECONDS)

    async def _ask(
        self,
        api: httpx2.AsyncClient,
        method: str,
        path: str,
        body: Any,
        headers: dict[str, str],
    ) -> tuple[int, dict[str, Any]]:
        try:
            answer = await api.request(method, path, json=body, headers=headers)
            return answer.status_code, dict(answer.json())
        except (httpx2.HTTPError, json.JSONDecodeError):
            return 0, {}

    def _answered(self, request: str, operation: str, status: int, answer: dict[str, Any]) -> None:
        accepted: dict[str, str] = {}
        for n, each in enumerate(answer.get("results", ())):
            if each["status"] in (200, 202):
                accepted[f"{operation}.{n}"] = each["job"]["job_id"]
        if status in (200, 202) and "position" in answer and "results" not in answer:
            accepted[operation] = answer["job_id"]
        self._jobs += accepted.values()
        state = answer.get("status") if isinstance(answer.get("status"), str) else ""
        self._history.note(
            "response",
            id=request,
            status=status,
            code=answer.get("code") or "",
            accepted=accepted,
            state=state or answer.get("state") or "",
            price=answer.get("price") or 0,
        )

    async def _follow(self, stream: str, job: str) -> None:
        """Server-sent events from the first on, over reconnects, until the job has ended."""
        after = 0
        headers = {"Accept": "text/event-stream"}
        with suppress(TimeoutError):
            async with asyncio.timeout(STREAM_SECONDS):
                for api in itertools.cycle(self._apis):
                    path = f"/api/v1/jobs/{job}/events?after={after}"
                    with suppress(httpx2.HTTPError):
                        async with api.stream("GET", path, headers=headers) as answer:
                            async for line in answer.aiter_lines():
                                after = self._heard(stream, job, line, after)
                        if answer.status_code == 200:
                            return
                    await asyncio.sleep(RETRY_PAUSE_SECONDS)

    def _heard(self, stream: str, job: str, line: str, after: int) -> int:
        if not line.startswith("data:"):
            return after
        event = json.loads(line.removeprefix("data:"))
        if "seq" not in event:
            return after
        self._history.note(
            "stream_event", stream=stream, job=job, seq=event["seq"], type=event["type"]
        )
        return int(event["seq"])
