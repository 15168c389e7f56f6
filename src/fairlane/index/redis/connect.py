"""Connection pools to Redis: to one server, to the primary that Redis Sentinel names, or to the one
of a Redis Cluster that serves our keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.errors import SetupError
from fairlane.index.redis.cluster_node import ClusterConnection, ClusterTlsConnection, NodeAddress
from fairlane.index.redis.keys import KEY_PREFIX

CONNECT_TIMEOUT_SECONDS = 1.0
"""A server that does not accept a connection within this time is treated as unavailable."""

REDIS_PORT, SENTINEL_PORT = 6379, 26379


class RedisConnection:
    """`url` is `redis://`, `rediss://`, `unix://`, for sentinels
    `redis+sentinel://host:port,host:port/name/0`, or for a cluster
    `redis+cluster://host:port,host:port`, where `key` decides which node it is. Calls are never
    retried: scripts would run twice. `timeout` is the default time limit of an answer in seconds,
    the handshake included."""

    def __init__(
        self, url: str, *, connections: int, timeout: float, key: str = KEY_PREFIX
    ) -> None:
        options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        self._sentinel: Sentinel | None = None
        pool: BlockingConnectionPool
        if "+sentinel://" in url:
            self._sentinel, self.redis = _behind_sentinels(url, options)
        elif "+cluster://" in url:
            pool = BlockingConnectionPool(
                max_connections=connections,
                timeout=CONNECT_TIMEOUT_SECONDS,
                **_in_cluster(url, key),
                **options,
            )
            self.redis = Redis.from_pool(pool)
        else:
            pool = BlockingConnectionPool.from_url(
                url, max_connections=connections, timeout=CONNECT_TIMEOUT_SECONDS, **options
            )
            self.redis = Redis.from_pool(pool)
        pool_in_use = self.redis.connection_pool
        pool_in_use.connection_class = _reporting_closed(pool_in_use.connection_class)

    async def leave(self, *, at_once: bool = False) -> None:
        """Disconnect after a failover, so that the next call finds the new primary. `at_once` also
        closes connections that are in use."""
        await self.redis.connection_pool.disconnect(inuse_connections=at_once)

    async def close(self) -> None:
        await self.redis.aclose()
        for each in self._sentinel.sentinels if self._sentinel is not None else ():
            await each.aclose()


class ClosedConnection:
    """A connection that was closed a moment ago says so. On uvloop a write to it raises
    RuntimeError, which redis-py passes on."""

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        try:
            await super().send_packed_command(*args, **options)  # type: ignore[misc]
        except RuntimeError as error:
            raise RedisConnectionError(str(error)) from error


def _reporting_closed(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    return type(f"Reporting{kind.__name__}", (ClosedConnection, kind), {})


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
    addresses = [_address(host, SENTINEL_PORT) for host in hosts.split(",")]
    sentinel = Sentinel(addresses, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    return sentinel, sentinel.master_for(name, Redis, **options)


def _in_cluster(url: str, key: str) -> dict[str, Any]:
    """Options of a pool, from a URL with the hosts of some nodes."""
    scheme, _, rest = url.partition("+cluster://")
    place = rest.partition("?")[0].partition("/")[0]
    hosts = place.rpartition("@")[2]
    if not hosts:
        raise SetupError("a URL of a cluster needs its hosts: redis+cluster://host:6379,host:6379")
    options: dict[str, Any] = {**parse_url(f"{scheme}://{rest.replace(hosts, 'node', 1)}")}
    for name in ("host", "port", "db"):
        options.pop(name, None)
    options["connection_class"] = ClusterTlsConnection if scheme == "rediss" else ClusterConnection
    nodes = [NodeAddress(*_address(host, REDIS_PORT)) for host in hosts.split(",")]
    return {**options, "nodes": nodes, "key": key}


def _address(host: str, default_port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    return parts.hostname or "", parts.port or default_port
