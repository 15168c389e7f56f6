"""The HTTP transport of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from fairlane.client.connection import ApiConnection
from fairlane.client.errors import ApiError, Unreachable
from fairlane.errors import SetupError
from fairlane.model.step import RetryTerms
from fairlane.model.worker import WorkerState
from fairlane.units import SECOND
from fairlane.worker.transport import Registration, ServerAway, UnknownWorker
from fairlane.worker_protocol.messages import News, Offer, PollAsk, Ref, Result, Task, Verdict
from fairlane.worker_protocol.service import TOO_LARGE

if TYPE_CHECKING:
    from fairlane.responses import (
        HeartbeatResponse,
        LeasedTaskResponse,
        PollResponse,
        RegisterResponse,
        ResultListResponse,
    )

ANSWER_TIMEOUT_SECONDS = 15.0
"""Seconds that a response may take, in addition to the time that a poll waits."""

LATER = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request is repeated."""


class HttpTransport:
    def __init__(self, url: str | None = None, key: str | None = None) -> None:
        self._connection = ApiConnection(url, key)
        self._me = ""

    async def register(self, offer: Offer) -> Registration:
        sent: dict[str, Any] = {
            "capabilities": sorted(offer.capabilities),
            "capacity": offer.capacity,
            "task_types": None if offer.task_types is None else sorted(offer.task_types),
            "region": offer.region,
            "tiers": None if offer.tiers is None else sorted(offer.tiers),
            "version": offer.version,
            "heartbeat_seconds": offer.heartbeat / SECOND,
        }
        if offer.name:
            sent["name"] = offer.name
        if offer.tasks:
            sent["task_options"] = {name: _terms(each) for name, each in offer.tasks.items()}
        answer = await self._post("register", sent)
        if not isinstance(answer, dict) or "worker_id" not in answer:
            raise SetupError(f"{self._connection.url} is not a Fairlane server; check the URL")
        registered = cast("RegisterResponse", answer)
        self._me = registered["worker_id"]
        return Registration(self._me, registered["heartbeat_seconds"], registered["lease_seconds"])

    async def poll(self, ask: PollAsk) -> News:
        sent: dict[str, Any] = {
            "available_capacity": ask.n,
            "wait_seconds": ask.wait,
            "again": not ask.first,
            "confirms": ask.confirms,
            "leases": _named(ask.leases or ()),
        }
        if ask.name:
            sent["poll_id"] = ask.name
        if ask.model is not None:
            sent["model"] = {
                "loaded": ask.model.name,
                "load_seconds": ask.model.load / SECOND,
            }
            if ask.model.age is not None:
                sent["model"] |= {
                    "age_seconds": ask.model.age / SECOND,
                    "tasks": ask.model.tasks,
                }
        return _news(await self._post(f"{self._me}/poll", sent, ask.wait + ANSWER_TIMEOUT_SECONDS))

    async def heartbeat(self, state: WorkerState, leases: Sequence[Ref]) -> News:
        sent = {"current_load": len(leases), "status": state, "leases": _named(leases)}
        return _news(await self._post(f"{self._me}/heartbeat", sent))

    async def report(self, results: Sequence[Result]) -> list[Verdict]:
        try:
            answer: ResultListResponse = await self._post(
                f"{self._me}/result", {"results": [_result(each) for each in results]}
            )
        except ApiError as error:
            if error.status != 413:
                raise
            return await self._report_less(results)
        return [
            Verdict(each["task_id"], each["status"], each["code"], each["detail"])
            for each in answer["results"]
        ]

    async def _report_less(self, results: Sequence[Result]) -> list[Verdict]:
        """Sends the results in smaller requests, because together they were too large. A result
        that is too large by itself fails its task."""
        if len(results) > 1:
            half = len(results) // 2
            return [*await self.report(results[:half]), *await self.report(results[half:])]
        (large,) = results
        trouble = large.trouble._replace(
            message="the result is too large to be sent", code=TOO_LARGE, retriable=False
        )
        return await self.report([large._replace(status="failed", output=None, trouble=trouble)])

    async def progress(self, ref: Ref, percent: float, text: str) -> None:
        sent = {"task_id": ref.task, "lease": ref.lease, "percent": percent, "text": text}
        try:
            await self._post(f"{self._me}/progress", sent)
        except ApiError as error:
            if error.status != 409:
                raise

    async def output(self, ref: Ref, first: int, chunks: Sequence[Any]) -> None:
        sent = {"task_id": ref.task, "lease": ref.lease, "first": first, "chunks": list(chunks)}
        await self._post(f"{self._me}/output", sent)

    async def close(self) -> None:
        await self._connection.close()

    async def _post(self, path: str, sent: Any, patience: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        try:
            return await self._connection.call(
                "POST", f"/internal/workers/{path}", sent, patience=patience
            )
        except Unreachable as error:
            raise ServerAway(str(error)) from error
        except ApiError as error:
            if error.status in LATER:
                raise ServerAway(str(error)) from error
            if error.status == 404:
                raise UnknownWorker(str(error)) from error
            raise


def _terms(terms: RetryTerms) -> dict[str, Any]:
    sent: dict[str, Any] = {"timeout_seconds": terms.timeout / SECOND}
    if terms.max_retries is not None:
        sent["max_retries"] = terms.max_retries
    if terms.backoff:
        sent["backoff"] = [pause / SECOND for pause in terms.backoff]
    return sent


def _named(refs: Sequence[Ref]) -> list[dict[str, str]]:
    return [{"task_id": ref.task, "lease": ref.lease} for ref in refs]


def _result(result: Result) -> dict[str, Any]:
    sent: dict[str, Any] = {
        "task_id": result.ref.task,
        "lease": result.ref.lease,
        "status": result.status,
    }
    if result.status == "completed":
        sent["result"] = result.output
        if result.metrics is not None:
            sent["metrics"] = result.metrics
    if result.status == "failed":
        sent["error"] = result.trouble._asdict()
    return sent


def _news(answer: PollResponse | HeartbeatResponse) -> News:
    polled = cast("PollResponse", answer)
    tasks = tuple(_task(each) for each in polled.get("tasks", ()))
    cancel, lost = tuple(polled["cancel"]), tuple(polled["lost"])
    return News(tasks, cancel, lost, polled["drain"], polled.get("confirm", False))


def _task(sent: LeasedTaskResponse) -> Task:
    """The task without the end of its lease: the server's clock may differ from this machine's."""
    return Task(
        sent["task_id"],
        sent["task_type"],
        sent["parameters"],
        sent["context"],
        round(sent["timeout_seconds"] * SECOND),
        sent["trace_id"],
        sent["attempt"],
        sent["model"],
        sent["lease"],
        0,
        sent.get("timeout_given", False),
        sent.get("checked_step"),
    )
