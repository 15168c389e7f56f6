"""The write timeout: a peer that stops reading is disconnected."""

from __future__ import annotations

import asyncio

STALLED_WRITE_SECONDS = 60.0
"""A connection is aborted when a peer has read nothing for so long while data waits for it. Linux
reports a slow reader's progress in steps of up to a megabyte, so this is generous."""


class WriteTimeout:
    """Aborts a transport whose unsent bytes do not become fewer."""

    __slots__ = ("_loop", "_timer", "_unsent_bytes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    def start(self, transport: asyncio.Transport) -> None:
        """Starts the timer. Does nothing if the timer runs."""
        if self._timer is None:
            self._unsent_bytes = transport.get_write_buffer_size()
            self._arm(transport)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, transport: asyncio.Transport) -> None:
        self._timer = self._loop.call_later(STALLED_WRITE_SECONDS, self._check, transport)

    def _check(self, transport: asyncio.Transport) -> None:
        before, self._unsent_bytes = self._unsent_bytes, transport.get_write_buffer_size()
        if self._unsent_bytes >= before:
            self._timer = None
            transport.abort()
        else:
            self._arm(transport)
