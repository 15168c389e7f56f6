"""Reaching Redis: one server, or whichever one its sentinels name."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from fairlane.errors import SetupError

CONNECT_TIMEOUT_SECONDS = 1.0
"""Seconds after which a server that does not take a connection counts as away."""

SENTINEL_PORT = 26379


class RedisConnection:
    """`url` is `redis://`, `rediss://`, `unix://`, or for sentinels
    `redis+sentinel://host:port,host:port/name/0`. No call is ever repeated: scripts
    would run twice. `timeout` is how many seconds an answer takes that nobody has set another limit
    for, also those with which a connection begins."""

    def __init__(self, url: str, *, connections: int, timeout: float) -> None:
        options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        self._sentinel: Sentinel | None = None
        if "+sentinel://" in url:
            self._sentinel, self.redis = _behind_sentinels(url, options)
        else:
            pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
                url, max_connections=connections, timeout=CONNECT_TIMEOUT_SECONDS, **options
            )
            self.redis = Redis.from_pool(pool)

    async def leave(self, *, at_once: bool = False) -> None:
        """The server is not the one to talk to any more: look for it again. `at_once` = also who
        talks or listens to it just now."""
        await self.redis.connection_pool.disconnect(inuse_connections=at_once)

    async def close(self) -> None:
        await self.redis.aclose()
        for each in self._sentinel.sentinels if self._sentinel is not None else ():
            await each.aclose()


def _behind_sentinels(url: str, options: dict[str, Any]) -> tuple[Sentinel, Redis]:
    """urlsplit knows one host only; here there may be several."""
    scheme, _, rest = url.partition("+sentinel://")
    place, _, path = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    name, _, database = path.partition("/")
    if not name or not hosts:
        raise SetupError(
            "a URL of sentinels says who they are and what they watch: "
            "redis+sentinel://host:26379,host:26379/name"
        )
    user, _, password = login.partition(":")
    options |= {
        "db": int(database or 0),
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "ssl": scheme == "rediss",
    }
    asked = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "protocol": 2}
    addresses = [_address(host) for host in hosts.split(",")]
    sentinel = Sentinel(addresses, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    return sentinel, sentinel.master_for(name, Redis, **options)


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    return parts.hostname or "", parts.port or SENTINEL_PORT
