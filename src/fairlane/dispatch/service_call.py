"""One HTTP call of a service, and whether it has certainly ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from fairlane.clock import Clock
from fairlane.dispatch.service_responses import Bad, Good, Meaning, retry_after, understand
from fairlane.dispatch.streamed_response import (
    Streamed,
    Told,
    ends_visibly,
    is_stream,
    lines,
    media_type,
    understand_line,
)
from fairlane.errors import SetupError
from fairlane.model.attempt import Fault
from fairlane.model.endpoint import Endpoint, wrong_header
from fairlane.model.lease import Lease
from fairlane.trace_context import trace_id, traceparent

log = logging.getLogger("fairlane")

CONNECT_TIMEOUT_SECONDS = 10.0
"""Seconds until a connection must stand. The step's own time limit bounds the response."""

CANCEL_SECONDS = 10.0
"""Seconds in which a service must answer a cancel request."""

CHUNK_BYTES = 1 << 16

ACCEPTED_TYPES = "application/json, application/x-ndjson, */*;q=0.1"
"""The `Accept` header, unless the endpoint has one of its own."""


TellOutput = Callable[[Lease, int, Sequence[Any]], None]
"""Takes chunks of output, of which the first has this number."""


class ServiceCall:
    """`begun` turns true when the service may have received the call. From then on only a response
    proves that the call has ended: a service may continue after its caller has disconnected.
    `told` is the last progress that a streamed response brought and that is not reported yet,
    `result` its result, `chunks` the number of its chunks of output. `lease_until` is the end of
    the lease as last renewed."""

    def __init__(
        self,
        lease: Lease,
        endpoint: Endpoint,
        session: aiohttp.ClientSession,
        clock: Clock,
        tell_output: TellOutput | None = None,
    ) -> None:
        self.lease, self.endpoint = lease, endpoint
        self._session, self._clock = session, clock
        self.lease_until = lease.lease_until
        self.begun = False
        self.told: Told | None = None
        self.result: Meaning | None = None
        self.chunks = 0
        self._tell_output = tell_output

    async def make(self) -> Meaning:
        service = self.lease.service
        made = _CALL_BEING_MADE.set((self, self._clock))
        try:
            return await self._exchange()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if (known := self.cut_off()) is not None:
                return known
            what = "the connection was lost" if self.begun else "no connection"
            message = f"{service}: {what} ({type(error).__name__})"
            return Bad(Fault.UNAVAILABLE, message, over=not self.begun)
        except Exception:
            log.exception("calling %s for job %s", service, self.lease.job)
            message = f"{service} could not be called"
            return Bad(Fault.TRANSIENT, message, over=not self.begun)
        finally:
            _CALL_BEING_MADE.reset(made)

    def begin(self, clock: Clock) -> bool:
        """The connection stands. Returns whether the call may be sent: not if its lease has ended,
        because the process stood still or the service took too long to accept."""
        self.begun = clock.now() < self.lease_until
        return self.begun

    def cut_off(self) -> Meaning | None:
        """The result of a streamed response that has not ended, if it brought one. The service may
        still be busy."""
        return None if self.result is None else self.result._replace(over=False)

    @property
    def can_be_cancelled(self) -> bool:
        return bool(self.endpoint.cancel_path)

    async def is_over(self) -> bool:
        """Asks the service to end this cut-off call. Returns whether the service says that it has
        ended."""
        url = self.endpoint.url_in(self.lease.region).rstrip("/") + self.endpoint.cancel_path
        try:
            async with (
                asyncio.timeout(CANCEL_SECONDS),
                self._session.post(
                    url,
                    data=orjson.dumps({"meta": body_of(self.lease)["meta"]}),
                    headers={**self.endpoint.headers, **headers_of(self.lease)},
                    allow_redirects=False,
                ) as response,
            ):
                return 200 <= response.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.warning("%s: cancelling %s: %r", self.lease.service, self.lease.job, error)
            return False

    async def _exchange(self) -> Meaning:
        async with self._session.post(
            execute_url(self.endpoint.url_in(self.lease.region)),
            data=orjson.dumps(body_of(self.lease)),
            headers={**self.endpoint.headers, **headers_of(self.lease)},
            allow_redirects=False,
        ) as response:
            if self._is_streamed(response):
                return await self._follow(response)
            body = await self._read(response)
        if body is None:
            message = f"{self.lease.service} answered more than {self.endpoint.max_response} bytes"
            return Bad(Fault.RESULT_TOO_LARGE, message)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            message = f"{self.lease.service} answered compressed, though it was asked not to"
            return Bad(Fault.SERVICE_ERROR, message)
        media = media_type(response.headers)
        meaning = understand(self.lease.service, self.endpoint, response.status, body, media)
        if isinstance(meaning, Good):
            return meaning
        return meaning._replace(retry_after=retry_after(response.headers, self._clock.now()))

    def _is_streamed(self, response: aiohttp.ClientResponse) -> bool:
        plain = response.headers.get("Content-Encoding", "identity") == "identity"
        retried = response.status in self.endpoint.retry_on
        return plain and not retried and is_stream(response.status, response.headers)

    async def _follow(self, response: aiohttp.ClientResponse) -> Meaning:
        """Reads a streamed response to its end: only then the service has certainly finished. The
        first result counts."""
        service, whole = self.lease.service, ends_visibly(response.headers)
        parts = response.content.iter_chunked(CHUNK_BYTES)
        async for line in lines(parts, self.endpoint.max_response):
            if self.result is not None:
                continue
            if line is None:
                message = f"{service} sent a line of more than {self.endpoint.max_response} bytes"
                self.result = Bad(Fault.RESULT_TOO_LARGE, message)
            elif whole or line.endswith(b"\n"):
                said = understand_line(service, line)
                if isinstance(said, Told):
                    self.told = said
                elif isinstance(said, Streamed):
                    self.told = said.told or self.told
                    self._stream(said.output)
                else:
                    self.result = said
        if self.result is not None:
            return self.result
        if not whole:
            raise ConnectionError("the response may not be complete")
        return Bad(Fault.TRANSIENT, f"{service} ended its response without a result")

    def _stream(self, output: Any) -> None:
        if self._tell_output is not None:
            self._tell_output(self.lease, self.chunks, [output])
        self.chunks += 1

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        """The body, or None if it is too long. A too long body is still read to its end: only then
        the service has certainly finished."""
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_chunked(CHUNK_BYTES):
            size += len(part)
            if size <= self.endpoint.max_response:
                parts.append(part)
            else:
                parts.clear()
        return b"".join(parts) if size <= self.endpoint.max_response else None


def body_of(lease: Lease) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "job_id": lease.job,
        "step_index": lease.step,
        "service_name": lease.service,
        "attempt": lease.attempt,
    }
    if lease.model:
        meta |= {"model": lease.model, "slot": lease.slot}
    if lease.checked_step is not None:
        meta["checked_step"] = lease.checked_step
    return {
        "meta": meta,
        "payload": {"params": lease.input, "context": lease.context},
    }


def headers_of(lease: Lease) -> Mapping[str, str]:
    found = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if parent := traceparent(trace_id(lease.job, lease.trace)):
        found["traceparent"] = parent
    return found


def execute_url(url: str) -> str:
    return f"{url.rstrip('/')}/v1/execute"


def checked(service: str, endpoint: Endpoint, regions: Iterable[str] = ()) -> Endpoint:
    """Checks that its headers can be sent and that it has a URL in each of these regions. The URL
    without a region may be empty if every region has its own."""
    for url in [endpoint.url_in(region) for region in regions] or [endpoint.url]:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SetupError(f'service "{service}": its url must begin with http:// or https://')
        if parts.username is not None or parts.query or parts.fragment:
            raise SetupError(
                f'service "{service}": its url takes no user, query or fragment; use headers'
            )
    for name, value in endpoint.headers.items():
        if (wrong := wrong_header(name, value)) is not None:
            raise SetupError(f'service "{service}": header {name!r}: {wrong}')
    return endpoint


_CALL_BEING_MADE: ContextVar[tuple[ServiceCall, Clock]] = ContextVar("call_being_made")
"""The call that this task makes. A cancel request has none."""


class HttpCaller:
    """Calls one service over HTTP."""

    def __init__(
        self,
        endpoint: Endpoint,
        session: aiohttp.ClientSession,
        clock: Clock,
        tell_output: TellOutput,
    ) -> None:
        self.endpoint, self._session, self._clock = endpoint, session, clock
        self._tell_output = tell_output

    def call(self, lease: Lease) -> ServiceCall:
        return ServiceCall(lease, self.endpoint, self._session, self._clock, self._tell_output)


class LeaseCheckingConnector(aiohttp.TCPConnector):
    """Opens a new connection for every call. Next to a call of seconds this costs nothing, and a
    kept connection that the service closes at that moment would look like a lost call. A call whose
    lease has ended before its connection stands is not sent."""

    def __init__(self) -> None:
        super().__init__(limit=0, force_close=True)

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        call, clock = _CALL_BEING_MADE.get((None, None))
        if call is not None and clock is not None and not call.begin(clock):
            connection.close()
            raise aiohttp.ClientConnectionError("its lease ended before the connection stood")
        return connection


def open_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=LeaseCheckingConnector(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept": ACCEPTED_TYPES},
    )
