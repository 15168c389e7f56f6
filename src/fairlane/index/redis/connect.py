"""Connection pools to Redis: to one server, or to the primary that Redis Sentinel names."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from fairlane.errors import SetupError

CONNECT_TIMEOUT_SECONDS = 1.0
"""A server that does not accept a connection within this time is treated as unavailable."""

SENTINEL_PORT = 26379


class RedisConnection:
    """`url` is `redis://`, `rediss://`, `unix://`, or for sentinels
    `redis+sentinel://host:port,host:port/name/0`. Calls are never retried: scripts would run twice.
    `timeout` is the default time limit of an answer in seconds, the handshake included."""

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
        """Disconnect after a failover, so that the next call finds the new primary. `at_once` also
        closes connections that are in use."""
        await self.redis.connection_pool.disconnect(inuse_connections=at_once)

    async def close(self) -> None:
        await self.redis.aclose()
        for each in self._sentinel.sentinels if self._sentinel is not None else ():
            await each.aclose()


def _behind_sentinels(url: str, options: dict[str, Any]) -> tuple[Sentinel, Redis]:
    """Parse a URL of sentinels. `urlsplit` supports one host only, this URL may have several."""
    scheme, _, rest = url.partition("+sentinel://")
    place, _, path = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    name, _, database = path.partition("/")
    if not name or not hosts:
        raise SetupError(
            "a URL of sentinels needs their hosts and the name of the primary: "
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
