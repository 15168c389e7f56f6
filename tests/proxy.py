"""A proxy between a client and a server that loses what the test tells it to lose."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes between clients of `url` and the server at the URL it was made for, both ways
    and unread, until told otherwise. An asynchronous context manager."""

    url: str

    def __init__(self, server_url: str) -> None:
        self._server_url = urlsplit(server_url)
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._marker: bytes | None = None
        self._refusing = self._silent = False
        self._dropped = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        user, at, _ = self._server_url.netloc.rpartition("@")
        self.url = self._server_url._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        tasks = list(self._links)
        self.refuse()
        await asyncio.gather(*tasks)
        await self._listener.wait_closed()

    def drop_replies(self, after: bytes = b"") -> None:
        """Requests still arrive; of what the server says, nothing does. From now on, or on each
        connection from the request on that has `after` in it."""
        self._dropped.clear()
        self._marker = after
        for link in self._links.values():
            link.dropping = link.lost or not after

    async def dropped(self) -> None:
        """Returns when a reply has been lost: so the server has dealt with the request."""
        await self._dropped.wait()

    def silence(self, *, new: bool = True) -> None:
        """From now on every byte is swallowed, in both directions, and no connection breaks: what a
        network does that loses its packets. With `new`, connections made from now on are as
        silent; a connection that was silent once stays so for ever."""
        self._silent = new
        for link in self._links.values():
            link.silent = True

    def silence_lost(self) -> None:
        """Connections that lost a reply say nothing any more, and stay open. All others work."""
        self._marker = None
        for link in self._links.values():
            link.silent = link.silent or link.lost

    def end_silence(self) -> None:
        """New connections work."""
        self._silent, self._marker = False, None

    def cut(self) -> None:
        """Every connection breaks, on both sides. New ones are welcome."""
        for link in self._links.values():
            link.cut()

    def refuse(self) -> None:
        """Every connection breaks, and so does each new one."""
        self._refusing = True
        self.cut()

    def lead_to(self, server_url: str) -> None:
        """Every connection breaks; new ones are to that server."""
        self._server_url = urlsplit(server_url)
        self.cut()

    def go_on(self) -> None:
        """All is well again. Connections that lost a reply break: the next would answer nothing
        that was asked."""
        self._marker, self._refusing = None, False
        for link in self._links.values():
            link.dropping = False
            if link.lost:
                link.cut()

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        link = _Link(client, dropping=self._marker == b"", silent=self._silent)
        task = asyncio.current_task()
        assert task
        self._links[task] = link
        try:
            if self._refusing:
                link.cut()
            else:
                await self._pass_bytes(reader, link)
        except OSError:  # the server is down, and this is how the client learns it
            link.cut()
        finally:
            await link.close()
            del self._links[task]

    async def _pass_bytes(self, reader: asyncio.StreamReader, link: _Link) -> None:
        """Until either side ends."""
        host, port = self._server_url.hostname, self._server_url.port
        replies, link.server = await asyncio.open_connection(host, port)
        pumps = [
            asyncio.create_task(self._requests(reader, link.server, link)),
            asyncio.create_task(self._replies(replies, link.client, link)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if link.silent:  # that one side has closed it does not reach the other either
            await link.broken.wait()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, link: _Link
    ) -> None:
        seen = b""
        while data := await client.read(65536):
            if self._marker:
                seen = seen[-len(self._marker) :] + data
                link.dropping = link.dropping or self._marker in seen
            if link.silent:
                continue
            server.write(data)
            await server.drain()

    async def _replies(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, link: _Link
    ) -> None:
        while data := await server.read(65536):
            if link.dropping or link.silent:
                link.lost = True
                self._dropped.set()
            else:
                client.write(data)
                await client.drain()


class _Link:
    """One client's connection and the one made for it to the server."""

    def __init__(self, client: asyncio.StreamWriter, *, dropping: bool, silent: bool) -> None:
        self.client, self.dropping, self.silent = client, dropping, silent
        self.server: asyncio.StreamWriter | None = None
        self.lost = False
        self.broken = asyncio.Event()

    def cut(self) -> None:
        """Break both, with what was still to be sent."""
        self.broken.set()
        for writer in self._writers():
            writer.transport.abort()

    async def close(self) -> None:
        """End both, once all is sent."""
        for writer in self._writers():
            writer.close()
        for writer in self._writers():
            with suppress(OSError):
                await writer.wait_closed()

    def _writers(self) -> list[asyncio.StreamWriter]:
        return [self.client, self.server] if self.server else [self.client]
