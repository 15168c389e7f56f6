"""The HTTP/1.1 protocol of one connection. Bytes and time are limited before authentication.
Requests that two servers could parse differently (request smuggling) are refused.

The parser (llhttp, through httptools) has no limits of its own. It also treats a request with an
`Upgrade` header as the last one: it skips the body and parses the next bytes as a new request."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fairlane.api.http.body_limits import too_large, too_slow
from fairlane.api.http.connection_limit import is_exempt, too_many_connections
from fairlane.api.http.headers import IDS, MAX_LENGTH_DIGITS
from fairlane.api.http.problem_details import ProblemDetails, raw
from fairlane.api.http.websocket_limits import WebSocketProtocol
from fairlane.api.http.write_timeout import WriteTimeout

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

    from fairlane.api.app import App

MAX_HEAD_BYTES = 64 << 10
"""The size limit of a request head. It may be exceeded by one read; the guard checks the exact
size of the headers."""

MAX_HEADERS = 256
MAX_FRAMING_BYTES = 16 << 10
"""The limit of consecutive bytes that are neither head nor body: chunk sizes and extensions,
trailers, blank lines. It may be exceeded by one read."""

MAX_UNREAD_BYTES = 1 << 20
"""How many bytes a body may exceed the largest limit of a route before the connection closes."""

MAX_PIPELINED_REQUESTS = 64
"""Requests that may wait for an earlier response on the same connection."""

ABSOLUTE_URL = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)


class StopParsing(Exception):
    """Stops the parser: no more bytes of this connection are parsed."""


class HttpProtocol(HttpToolsProtocol):
    """One HTTP/1.1 connection."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._app = cast("App", self.config.app)
        self._has_asked = self._in_message = self._is_taken = False
        self._in_head = True
        self._framing_bytes = self._body_bytes = 0
        self._opens_websocket = self._ignores_upgrade = False
        self._is_last = self._is_over = self._is_extra = False
        self._running: RequestResponseCycle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writes = WriteTimeout(self.loop)

    # --- the connection --------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_extra = self._is_crowded()
        self._start_timer()

    def _is_crowded(self) -> bool:
        return len(self.connections) > self._app.app_context.settings.server.connections

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._writes.stop()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn sets it only on the newest request
            self._running.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        self._writes.start(self.transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writes.start(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._writes.stop()

    def close(self) -> None:
        """Closes the connection after the written bytes are sent, or after the write timeout."""
        self._is_over = True
        self.transport.close()
        self._writes.start(self.transport)

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.close()

    # --- bytes -----------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        """Blank lines between two requests do not stop the keep-alive timer: the next request
        does, when it begins."""
        if self._is_over:
            return
        self._framing_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.refuse(malformed("this is not HTTP"))
            return
        if self._in_head and self._framing_bytes > MAX_HEAD_BYTES:
            self.refuse(ProblemDetails(431, "headers_too_large", "at most 16 KiB of headers"))
        elif not self._in_head and self._framing_bytes > MAX_FRAMING_BYTES:
            self.refuse(malformed(f"at most {MAX_FRAMING_BYTES} bytes between parts of a body"))
        elif self._in_head and self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        if self._is_over or self.transport.is_closing():
            raise StopParsing
        self._has_asked = self._in_message = self._in_head = True
        self._is_taken, self._framing_bytes = False, 0
        self._unset_keepalive_if_required()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignores trailers: a proxy has not checked them."""
        if self._in_head:
            if len(self.headers) >= MAX_HEADERS:
                self.demand(
                    ProblemDetails(431, "headers_too_large", f"at most {MAX_HEADERS} headers")
                )
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._framing_bytes, self._body_bytes = False, 0, 0
        self._stop_timer()
        if self.transport.is_closing():
            raise StopParsing
        self.demand(self._wrong_head())
        if self.parser.should_upgrade():
            self._look_at_upgrade()
            return
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self.cycle.keep_alive = False  # the earlier request is the last one answered
            self._is_over = True
            raise StopParsing
        version = self.parser.get_http_version()
        self._is_last = (
            version == "1.0"
            or self._ignores_upgrade
            or self.expect_100_continue  # without a 100 the client may omit the body
            or not self.parser.should_keep_alive()
        )
        self.expect_100_continue &= version != "1.0"
        self._refuse_if_extra()
        super().on_headers_complete()
        self._is_taken = True
        if self._is_last:
            self.cycle.keep_alive = False

    def _refuse_if_extra(self) -> None:
        """A connection beyond the limit serves only exempt requests, and closes after one."""
        if not self._is_extra:
            return
        if not is_exempt(self.parser.get_method(), self.url):
            self.demand(too_many_connections())
        self._is_last |= self._is_crowded()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._app.app_context.bounds.bytes:
            self._limit_body()
        super().on_body(body)

    def _limit_body(self) -> None:
        """Refuses a body that no route reads, or that is much too large. Else the route answers
        413."""
        most = self._app.app_context.result_bounds.bytes
        is_wanted = self._is_answering or not self._is_taken
        if not is_wanted or self._body_bytes > most + MAX_UNREAD_BYTES:
            self.demand(too_large(most))

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_message = False
        if self._is_last:
            self._is_over = True
        self._stop_timer()
        super().on_message_complete()

    # --- requests --------------------------------------------------------------------------------
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self.close()
        elif self.pipeline:
            self.flow.pause_reading()  # answer the pipelined requests first
        elif self._is_taken and self._in_message and self.cycle.response_complete:
            self._start_timer()  # the rest of a body that no route reads

    @property
    def _is_answering(self) -> bool:
        before = cast(RequestResponseCycle | None, self.cycle)
        return before is not None and not before.response_complete

    def refuse(self, problem: ProblemDetails) -> None:
        """Answers a request that cannot be parsed, and closes the connection. Earlier requests are
        answered first."""
        if self._is_over or self.transport.is_closing():
            return
        self._is_over = True
        self._app.app_context.instrumentation.refused(problem.status_code, problem.code)
        is_its_body = self._is_taken and self._in_message
        if self._is_answering and not is_its_body:
            self.cycle.keep_alive = False
            return
        is_silent = not self._is_answering or self.cycle.response_started or bool(self.pipeline)
        if not (is_its_body and is_silent):
            self.transport.write(raw(problem, "", IDS.new(), close=True))
        self.close()

    def demand(self, problem: ProblemDetails | None) -> None:
        if problem is not None:
            self.refuse(problem)
            raise StopParsing

    def _wrong_head(self) -> ProblemDetails | None:
        version, is_known = self.parser.get_http_version(), True
        if version not in ("1.0", "1.1"):
            return ProblemDetails(505, "http_version_not_supported", "use HTTP/1.1")
        hosts = []
        for name, value in self.headers:
            if name == b"content-length":
                is_known &= len(value) <= MAX_LENGTH_DIGITS
            elif name == b"transfer-encoding":
                is_known &= value.lower() == b"chunked" and version == "1.1"
            elif name == b"host":
                hosts.append(value.lower())
        if not is_known:
            return malformed("send the body with a Content-Length, or with chunked and HTTP/1.1")
        if self.parser.get_method() == b"CONNECT":
            return malformed("this is no proxy")
        if not self.url.startswith(b"/"):
            found = ABSOLUTE_URL.match(self.url)
            if found is None or hosts != [found[1].lower()]:
                return malformed("ask for a path, or for a URL with the same host as Host")
        return None

    # --- upgrades --------------------------------------------------------------------------------
    def _look_at_upgrade(self) -> None:
        """Accepts an upgrade to WebSocket from a GET without a body. Other upgrades are ignored, as
        RFC 9110 (7.8) allows: the request is parsed again without the header, so that its body is
        read as a body."""
        offers = [value.strip().lower() for name, value in self.headers if name == b"upgrade"]
        if offers != [b"websocket"]:
            return
        lengths = [value for name, value in self.headers if name == b"content-length"]
        is_chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        is_plain = self.parser.get_method() == b"GET" and self.parser.get_http_version() == "1.1"
        if not is_plain or is_chunked or any(value.strip(b"0") for value in lengths):
            self.demand(malformed("a WebSocket is opened with a GET without a body"))
        if self._is_answering:
            self.demand(malformed("a WebSocket is opened after the last answer has come"))
        self._opens_websocket = True
        self._refuse_if_extra()
        super().on_headers_complete()

    def _should_upgrade(self) -> bool:
        return self._opens_websocket

    def _upgrade(self, rest: bytes) -> None:
        """`rest` holds the bytes after the head that were read together with it."""
        if not self._opens_websocket:
            self._ignores_upgrade = True
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            self.data_received(head + rest)
        elif rest:
            self.refuse(malformed("a WebSocket begins after the answer to its handshake"))
        else:
            self.handle_websocket_upgrade()

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        first = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
        kept = [b"%s: %s" % pair for pair in self.headers if pair[0] != b"upgrade"]
        return b"\r\n".join([first, *kept, b"\r\n"])

    def handle_websocket_upgrade(self) -> None:
        """Hands the connection to the WebSocket protocol. Its parser has other limits and sends no
        response to a malformed head, so this method does."""
        if self.transport.is_closing():
            return
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if isinstance(socket, WebSocketProtocol) and not socket.handshake_initiated:
            self.refuse(malformed("this opens no WebSocket"))

    # --- time ------------------------------------------------------------------------------------
    def _start_timer(self) -> None:
        seconds = self._app.app_context.bounds.seconds
        self._timer = self.loop.call_later(seconds, self._give_up, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, seconds: float) -> None:
        self._timer = None
        if self._in_head and self._has_asked:
            self.refuse(too_slow(seconds))
        else:
            self.close()  # no request began, or it has been answered


def malformed(detail: str) -> ProblemDetails:
    return ProblemDetails(400, "malformed_request", detail)
