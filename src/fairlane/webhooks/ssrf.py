"""SSRF protection: a webhook may go to public addresses only."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from yarl import URL

from fairlane.config.settings import Settings
from fairlane.errors import UrlNotAllowed

MAX_URL_CHARACTERS = 2048
PLAIN = re.compile(r"[!-\[\]-~]+")
"""Printable ASCII without blanks and backslashes: all URL parsers read it in the same way."""

NAME = re.compile(r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,62}")
"""At least two labels, the last of which is not a number: 127.1 and 0x7f000001 are not names."""

USER = re.compile(r"[^/?#]*//[^/?#]*@")

NOT_PUBLIC = (
    ".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".arpa",
    ".localdomain", ".test", ".invalid",
)  # fmt: skip

UNICAST = IPv6Network("2000::/3")
NOT_DIRECT = tuple(
    IPv6Network(each)
    for each in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")  # reserved, or tunnels
)

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name."""


async def system_resolver(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


@dataclass(frozen=True)
class SsrfGuard:
    """Allows https to these ports if all addresses of the host are public, or the host is in
    `private`. Development mode also allows http to any port of this machine; it ends with the first
    API key."""

    ports: frozenset[int] = frozenset({443})
    private: frozenset[str] = frozenset()
    development: bool = False
    resolve: Resolver = system_resolver

    @classmethod
    def of(cls, settings: Settings) -> SsrfGuard:
        callbacks = settings.callbacks
        return cls(
            frozenset(callbacks.ports),
            frozenset(_plain(host) for host in callbacks.private),
            development=settings.server.loopback,
        )

    def with_keys(self) -> SsrfGuard:
        """The same without development mode: with keys, other machines can reach this server."""
        return replace(self, development=False)

    def check(self, url: str) -> URL:
        """Returns the parsed URL, or raises UrlNotAllowed. The host name is not resolved here: its
        addresses are checked when a webhook is sent."""
        if len(url) > MAX_URL_CHARACTERS or not PLAIN.fullmatch(url):
            raise UrlNotAllowed("a callback URL is printable ASCII, at most 2,048 characters")
        try:
            parsed = URL(url)
            host, port = parsed.raw_host or "", parsed.port
        except ValueError:
            raise UrlNotAllowed("this is not a URL") from None
        if parsed.scheme not in ("http", "https") or not host or port is None:
            raise UrlNotAllowed("a callback URL begins with https://")
        if USER.match(url):
            raise UrlNotAllowed("a callback URL names no user")
        if self._is_here(host):
            return parsed
        if parsed.scheme != "https":
            raise UrlNotAllowed("a callback URL begins with https://")
        if port not in self.ports:
            allowed = ", ".join(map(str, sorted(self.ports)))
            raise UrlNotAllowed(f"a callback URL uses port {allowed}")
        if _plain(host) not in self.private:
            _check_host(host)
        return parsed

    async def addresses(self, url: URL) -> list[str]:
        """Returns every address of the host, all of them checked. Raises UrlNotAllowed if one is
        not allowed, and OSError if the name cannot be resolved."""
        host, port = url.raw_host or "", url.port or 443
        literal = _literal(host)
        found = [host] if literal is not None else list(await self.resolve(host, port))
        if not found:
            raise OSError("no address")
        if _plain(host) in self.private:
            return found
        fits = is_loopback if self._is_here(host) else is_public
        if not all(fits(each) for each in found):
            raise UrlNotAllowed("this host is not on the public internet")
        return found

    def _is_here(self, host: str) -> bool:
        return self.development and (host == "localhost" or is_loopback(host))


def is_public(address: str) -> bool:
    ip = _literal(address)
    if isinstance(ip, IPv4Address):
        return ip.is_global and not ip.is_multicast
    if isinstance(ip, IPv6Address):
        direct = ip in UNICAST and not any(ip in network for network in NOT_DIRECT)
        return direct and ip.is_global and ip.scope_id is None
    return False


def is_loopback(address: str) -> bool:
    ip = _literal(address)
    return ip is not None and ip.is_loopback and getattr(ip, "ipv4_mapped", None) is None


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _check_host(host: str) -> None:
    if _literal(host) is not None:
        if not is_public(host):
            raise UrlNotAllowed("this host is not on the public internet")
        return
    name = _plain(host)
    if not NAME.fullmatch(name) or name.endswith(NOT_PUBLIC):
        raise UrlNotAllowed("this host is not on the public internet")


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")
