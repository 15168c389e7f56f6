"""One webhook delivery: an HTTP POST to IP addresses that the SSRF guard has checked."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL


class Post:
    def __init__(self) -> None:
        self._tls = ssl.create_default_context()

    async def send(
        self, url: URL, addresses: list[str], body: bytes, headers: Mapping[str, str]
    ) -> int:
        """Returns the HTTP status. Raises OSError if there was no response."""
        connector = aiohttp.TCPConnector(
            resolver=Checked(addresses), use_dns_cache=False, ssl=self._tls
        )
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
                ) as session,
                session.post(
                    url,
                    data=body,
                    headers={
                        **headers,
                        "Content-Type": "application/json",
                        "User-Agent": "Fairlane",
                    },
                    allow_redirects=False,
                ) as response,
            ):
                return response.status
        except aiohttp.ClientError as error:
            raise OSError(type(error).__name__) from error


class Checked(AbstractResolver):
    """A DNS resolver that returns only the checked addresses. This prevents DNS rebinding between
    the check and the connection."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        """Does nothing: this resolver holds no resources."""
