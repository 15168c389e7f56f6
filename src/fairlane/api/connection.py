"""The first bytes of a connection: bounded before anybody knows who sends them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fairlane.api.again import Pattern
from fairlane.api.body import too_slow
from fairlane.api.heads import IDS
from fairlane.api.problems import Problem
from fairlane.api.sockets import Socket
from fairlane.api.threshold import BATCH, SUBMITS, Caller, is_spared, raw, too_many_connections

if TYPE_CHECKING:
    from fairlane.api.app import App

MOST_BYTES = 64 << 10
"""Of the head of a request, more or less; the guard says exactly how much headers may be."""

MOST_REFUSED = 16
"""That came in one piece. More of them are no way to submit."""


class Connection(HttpToolsProtocol):
    """The head of a request comes within a time and a size. What comes after its body is no
    header: a proxy would not have looked at it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._app = cast("App", self.config.app)
        self._threshold = self._app.threshold
        self._asked, self._in_head, self._bytes = False, True, 0
        self._patience: asyncio.TimerHandle | None = None
        self._held: Caller | None = None
        self._body = b""
        self._is_away = self._is_extra = False
        self._between, self._is_quiet = True, True
        self._turned_away: Caller | None = None
        self._refused = self._turns = 0
        self._before: tuple[Caller, Pattern] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_extra = len(self.connections) > self._app.door.settings.server.connections
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._before is not None and self._is_turned_away_again(data):
            return
        begins, self._turned_away, self._before = self._between, None, None
        self._refused = 0
        self._bytes += len(data)
        super().data_received(data)
        if begins and self._between:
            self._remember(data)
        if self._held is not None:
            self._let_in()  # its body takes a while
        if self._is_away and self._patience is None:
            self._wait()
        if not self._in_head:
            return
        if self._bytes > MOST_BYTES:
            self._refuse(Problem(431, "headers_too_large", "at most 16 KiB of headers"))
        elif self._patience is None:
            self._wait()

    def on_message_begin(self) -> None:
        self._asked, self._in_head, self._bytes = True, True, 0
        self._between = False
        self._unset_keepalive_if_required()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait_no_longer()
        if self.transport.is_closing():
            self._is_away = True  # what stands behind the last answer
            return
        if self._is_extra and not is_spared(self.parser.get_method(), self.url):
            self._is_away = True
            self._refuse(too_many_connections())
        elif self.url in SUBMITS and self.parser.get_method() == b"POST":
            self._submit()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._held is not None:
            self._body += body
        elif not self._is_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._between = True
        if self._held is not None:
            said = self._threshold.turned_away_with(self._held, self._body)
            if said is None:
                self._let_in()
            else:
                self._turn_away(self._held, said)
        if self._is_away:
            self._rest()
        else:
            super().on_message_complete()

    # --- more submits than can be taken ----------------------------------------------------------
    def _submit(self) -> None:
        """Turned away here and now, or as soon as its tier is known; others pass."""
        threshold = self._threshold
        before = cast(RequestResponseCycle | None, self.cycle)
        if before is not None and not before.response_complete:
            super().on_headers_complete()  # it waits for the one before
            return
        if self.flow.write_paused or threshold.is_open:
            self._begin()  # who does not read what was answered waits for room, as everywhere
        elif (caller := threshold.caller(self.url, self.headers)) is None:
            self._begin()
        elif (said := threshold.turned_away(caller)) is not None:
            self._turn_away(caller, said)
        elif self.url == BATCH:
            self._begin()
        else:
            self._held, self._body = caller, b""

    def _begin(self) -> None:
        """From now on it counts, though its task runs later."""
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._app.door.crowd.coming += 1
            self.scope["coming"] = self._app.door.crowd  # type: ignore[typeddict-unknown-key]

    def _let_in(self) -> None:
        self._held = None
        self._begin()
        if self._body:
            super().on_body(self._body)

    def _turn_away(self, caller: Caller, said: bytes) -> None:
        """Who sends many at once, before they hear the first answer, begins anew."""
        self._held, self._is_away, self._turned_away = None, True, caller
        self._refused += 1
        self.transport.write(said)
        if self._refused >= MOST_REFUSED:
            self.transport.close()

    def _remember(self, data: bytes) -> None:
        """These bytes were whole requests. If they were one, and it was turned away, the next one
        may be like it."""
        if self._turned_away is not None and (found := Pattern.of(data)) is not None:
            self._before = (self._turned_away, found)

    def _is_turned_away_again(self, data: bytes) -> bool:
        """The bytes before these were one whole request, and it was turned away. If these are the
        same, so are they: nobody has to read them."""
        if self._before is None or self._threshold.is_open:
            return False
        if self.flow.write_paused or self.transport.is_closing():
            return False
        caller, pattern = self._before
        like = pattern.match(data)
        said = None if like is None else self._threshold.turned_away_again(caller, like)
        if said is None:
            return False
        self._is_quiet = False
        self.transport.write(said)
        self._app.door.turns.wait(self)
        return True

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
        """Not read before its turn, and closed if nobody comes any more."""
        self._is_away = False
        self._wait_no_longer()
        if not self.parser.should_keep_alive() or self.parser.get_http_version() == "1.0":
            self.transport.close()
        if self.transport.is_closing():
            return
        self.on_response_complete()
        self._app.door.turns.wait(self)

    def pause_reading(self) -> None:
        self._turns += 1
        self.flow.pause_reading()

    def resume_reading(self) -> None:
        """When it was the turn of all that were refused together."""
        self._turns -= 1
        if self._turns == 0 and not self.transport.is_closing():
            self.flow.resume_reading()

    # --- what is no request, or too slow ---------------------------------------------------------
    def send_400_response(self, msg: str) -> None:
        del msg
        self._refuse(Problem(400, "malformed_request", "this is not HTTP"))

    def handle_websocket_upgrade(self) -> None:
        """The head is read once more, by somebody with other bounds, who would leave it at that."""
        if self.transport.is_closing():
            return
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if isinstance(socket, Socket) and not socket.handshake_initiated:
            self._refuse(Problem(400, "malformed_request", "this opens no WebSocket"))

    def _wait(self) -> None:
        seconds = self._app.door.bounds.seconds
        self._patience = self.loop.call_later(seconds, self._give_up, seconds)

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self, seconds: float) -> None:
        if not self._asked or self._is_away:
            self.transport.close()  # nothing was asked, or it has been answered
        else:
            self._refuse(too_slow(seconds))

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        self._app.door.meter.refused(problem.status_code, problem.code)
        self.transport.write(raw(problem, "", IDS.new(), close=True))
        self.transport.close()
