"""One HTTP call of a service, and whether it has certainly ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from fairlane.clock import Clock
from fairlane.dispatch.service_responses import Bad, Good, Meaning, retry_after, understand
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


class ServiceCall:
    """`begun` turns true when the service may have received the call. From then on only a response
    proves that the call has ended: a service may continue after its caller has disconnected."""

    def __init__(self, lease: Lease, endpoint: Endpoint) -> None:
        self.lease, self.endpoint = lease, endpoint
        self.begun = False

    async def make(self, session: aiohttp.ClientSession, clock: Clock) -> Meaning:
        service = self.lease.service
        try:
            return await self._exchange(session, clock)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = "the connection was lost" if self.begun else "no connection"
            message = f"{service}: {what} ({type(error).__name__})"
            return Bad(Fault.UNAVAILABLE, message, over=not self.begun)
        except Exception:
            log.exception("calling %s for job %s", service, self.lease.job)
            message = f"{service} could not be called"
            return Bad(Fault.TRANSIENT, message, over=not self.begun)

    async def is_over(self, session: aiohttp.ClientSession) -> bool:
        """Asks the service to end this cut-off call. Returns whether the service says that it has
        ended."""
        url = self.endpoint.url_in(self.lease.region).rstrip("/") + self.endpoint.cancel_path
        try:
            async with (
                asyncio.timeout(CANCEL_SECONDS),
                session.post(
                    url,
                    data=orjson.dumps({"meta": body_of(self.lease)["meta"]}),
                    headers={**self.endpoint.headers, **headers_of(self.lease)},
                    allow_redirects=False,
                    trace_request_ctx=self,
                ) as response,
            ):
                return 200 <= response.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.warning("%s: cancelling %s: %r", self.lease.service, self.lease.job, error)
            return False

    async def _exchange(self, session: aiohttp.ClientSession, clock: Clock) -> Meaning:
        async with session.post(
            execute_url(self.endpoint.url_in(self.lease.region)),
            data=orjson.dumps(body_of(self.lease)),
            headers={**self.endpoint.headers, **headers_of(self.lease)},
            allow_redirects=False,
            trace_request_ctx=self,
        ) as response:
            body = await self._read(response)
        if body is None:
            message = f"{self.lease.service} answered more than {self.endpoint.max_response} bytes"
            return Bad(Fault.RESULT_TOO_LARGE, message)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            message = f"{self.lease.service} answered compressed, though it was asked not to"
            return Bad(Fault.SERVICE_ERROR, message)
        meaning = understand(self.lease.service, self.endpoint, response.status, body)
        if isinstance(meaning, Good):
            return meaning
        return meaning._replace(retry_after=retry_after(response.headers, clock.now()))

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
    meta = {
        "job_id": lease.job,
        "step_index": lease.step,
        "service_name": lease.service,
        "attempt": lease.attempt,
    }
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


def open_session() -> aiohttp.ClientSession:
    """An HTTP session that opens a new connection for every call. Next to a call of seconds this
    costs nothing, and a kept connection that the service closes at that moment would look like a
    lost call."""
    traces = aiohttp.TraceConfig()
    traces.on_connection_create_end.append(_connected)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trace_configs=[traces],
    )


async def _connected(
    session: aiohttp.ClientSession,  # noqa: ARG001 - as aiohttp calls it
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionCreateEndParams,  # noqa: ARG001
) -> None:
    context.trace_request_ctx.begun = True
