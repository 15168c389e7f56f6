"""The HTTP protocol with load shedding: submits are counted, refused early, or paced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from fairlane.api.http.protocol import HttpProtocol
from fairlane.api.overload.early_reject import (
    BATCH,
    SUBMITS,
    KnownCaller,
    is_spared,
    too_many_connections,
)
from fairlane.api.overload.retry_pacing import TOO_SOON_SECONDS

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

MAX_PIPELINED_REFUSALS = 16
"""That came in one piece. More of them are no way to submit."""

SUBMITTING = tuple(b"POST %s " % path for path in SUBMITS)
MAX_PACED_BYTES = 16 << 10
"""Bytes that are read from who waits for their turn, more or less."""


class SheddingProtocol(HttpProtocol):
    """A connection of the API."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._threshold = self._app.threshold
        self._held: KnownCaller | None = None
        self._body: bytearray | None = None
        self._is_away = self._is_extra = False
        self._is_quiet = True
        self._turned_away: KnownCaller | None = None
        self._refused, self._refused_at = 0, 0.0
        self._kept, self._is_let_in = b"", False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_extra = self._is_crowded()

    def _is_crowded(self) -> bool:
        return len(self.connections) > self._app.app_context.settings.server.connections

    def data_received(self, data: bytes) -> None:
        if self._kept or (self._refused_at and self._is_too_soon(data)):
            self._keep(data)
        elif not self._is_turned_away_again(data):
            self._read(data)

    def _read(self, data: bytes) -> None:
        begins, self._turned_away = not self._in_message, None
        self._refused = 0
        self.event_stream(data)
        if begins and not self._in_message:
            self._remember(data)
        if self._body is not None and not self._is_over:
            self._go_in()  # the rest of it takes a while
        if self._is_away and self._timer is None:
            self._start_timer()

    def take(self) -> None:
        self._send_away_if_extra()
        if self.url in SUBMITS and self.parser.get_method() == b"POST":
            self._submit()
        else:
            super().take()

    def take_websocket(self) -> None:
        self._send_away_if_extra()
        super().take_websocket()

    def _send_away_if_extra(self) -> None:
        if not self._is_extra:
            return
        if not is_spared(self.parser.get_method(), self.url):
            self.demand(too_many_connections())
        self._is_last |= self._is_crowded()  # what is never refused does not stay, either

    def take_body(self, body: bytes) -> None:
        if self._body is not None:
            self._body += body
        elif not self._is_away:
            super().take_body(body)

    def complete(self) -> None:
        if self._body is not None:
            self._decide(bytes(self._body))
        if self._is_away:
            self._rest()
        else:
            super().complete()

    # --- more submits than can be taken ----------------------------------------------------------
    def _submit(self) -> None:
        """Turned away here and now, or held until its tier is known."""
        threshold = self._threshold
        if self._is_answering or self._ignores_upgrade:
            super().take()  # it waits for the one before
            return
        caller = None
        if not threshold.is_open and not self.flow.write_paused:
            caller = threshold.caller(self.url, self.headers)
        if caller is not None and (said := threshold.turned_away(caller)) is not None:
            self._turn_away(caller, said)
        else:
            self._held, self._body = caller, bytearray()

    def _decide(self, body: bytes) -> None:
        """All of a submit is here. If there is room it is let in, and nobody refuses it later; of
        whom nothing is known, and of what is in a batch, others decide."""
        caller, is_single = self._held, self.url != BATCH
        if caller is None or not is_single:
            self._is_let_in = is_single and self._app.app_context.limiter.room_for_all
        elif (said := self._threshold.turned_away_with(caller, body)) is not None:
            self._turn_away(caller, said)
            return
        else:
            self._is_let_in = True
        self._go_in()

    def _go_in(self) -> None:
        body, self._body = self._body, None
        super().take()
        self._is_let_in = False
        if body:
            super().take_body(bytes(body))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        start = super()._start_asgi_task
        if not self._is_let_in:
            start(cycle, app)
            return
        cycle.scope["let_in"] = True  # type: ignore[typeddict-unknown-key]

        def begin(left: Callable[[], None]) -> None:
            start(cycle, _until(left, app))

        self._refused_at = 0.0
        self._app.app_context.limiter.let_in(begin)

    def _turn_away(self, caller: KnownCaller, said: bytes) -> None:
        """Who sends many at once, before they hear the first answer, begins anew."""
        self._body, self._is_away, self._turned_away = None, True, caller
        self._is_taken = True
        self._refused += 1
        self._refused_at = time.monotonic()
        self.transport.write(said)
        if self._refused >= MAX_PIPELINED_REFUSALS:
            self.close()

    def _remember(self, data: bytes) -> None:
        """These bytes were whole requests. Whoever is to be turned away like that is known."""
        if self._turned_away is not None and not self.transport.is_closing():
            self._threshold.remember(data, self._turned_away)

    def _is_turned_away_again(self, data: bytes) -> bool:
        """Between two requests, a whole one like others that were turned away: it is, too, and
        nobody has to read it."""
        if self._threshold.is_open or self._in_message or self.timeout_keep_alive_task is None:
            return False
        if self._is_extra or self.flow.write_paused or self.transport.is_closing():
            return False
        said = self._threshold.turned_away_again(data)
        if said is None:
            return False
        self._is_quiet, self._refused_at = False, time.monotonic()
        self.transport.write(said)
        return True

    def _is_too_soon(self, data: bytes) -> bool:
        """Whether who was refused a moment ago submits again, and it is not their turn."""
        return (
            data.startswith(SUBMITTING)
            and time.monotonic() - self._refused_at < TOO_SOON_SECONDS
            and self._app.app_context.turns.wait(self, len(data))
        )

    def _keep(self, data: bytes) -> None:
        self._kept += data
        self._is_quiet = False
        if len(self._kept) > MAX_PACED_BYTES:
            self.flow.pause_reading()

    def go_on(self) -> None:
        """What was kept is heard now."""
        data, self._kept = self._kept, b""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if not self._is_turned_away_again(data):
            self._read(data)

    def timeout_keep_alive_handler(self) -> None:
        """What was turned away again has left the timer as it was."""
        if self._is_quiet:
            super().timeout_keep_alive_handler()
        elif not self.transport.is_closing():
            self._is_quiet = True
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _rest(self) -> None:
        """Closed if this was the last request."""
        self._is_away = False
        if self._is_last:
            self.close()
        if not self.transport.is_closing():
            self.on_response_complete()


def _until(left: Callable[[], None], app: ASGI3Application) -> ASGI3Application:
    """The same, and then this."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        finally:
            left()

    return run
