"""The state of the Redis server (health metrics), from INFO and CONFIG GET."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fairlane.errors import SetupError, StoreAway
from fairlane.index.index import IndexServer
from fairlane.index.redis.connect import RedisConnection

PROBE_SECONDS = 2.0


async def server_at(url: str) -> IndexServer:
    """The state of the server at this address. Raises StoreAway or SetupError."""
    connection = RedisConnection(url, connections=1, timeout=PROBE_SECONDS)
    try:
        return await server_of(connection.redis)
    except (AuthenticationError, ResponseError) as error:
        raise SetupError(f"Redis refuses: {error}") from error
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise StoreAway(f"cannot reach Redis: {error}") from error
    finally:
        await connection.close()


async def server_of(redis: Redis) -> IndexServer:
    found: dict[str, Any] = await redis.info()
    return IndexServer(
        version=f"{found.get('server_name', 'redis')} {_version(found)}",
        eviction_policy=str(found.get("maxmemory_policy", "")),
        used_bytes=int(found.get("used_memory", 0)),
        max_bytes=int(found.get("maxmemory", 0)),
        connections=int(found.get("connected_clients", 0)),
        max_connections=int(found.get("maxclients", 0)),
        refuses_writes=await _refusal(redis, found),
    )


def _version(found: dict[str, Any]) -> str:
    return str(found.get("valkey_version") or found.get("redis_version", "unknown"))


async def _refusal(redis: Redis, found: dict[str, Any]) -> str:
    """Why the server accepts no writes; empty if it does."""
    if found.get("loading"):
        return "it is loading its data"
    if found.get("role") == "slave" and found.get("slave_read_only") != 0:
        return "it is a read-only replica"
    if found.get("aof_enabled") and found.get("aof_last_write_status") == "err":
        return "its append-only file cannot be written"
    if found.get("rdb_last_bgsave_status") == "err" and await _stops_on_failed_save(redis):
        return "its last snapshot could not be saved (stop-writes-on-bgsave-error)"
    used, most = int(found.get("used_memory", 0)), int(found.get("maxmemory", 0))
    if most and used >= most:
        return f"its memory is full ({used} of {most} bytes)"
    return ""


async def _stops_on_failed_save(redis: Redis) -> bool:
    try:
        found = await redis.config_get("stop-writes-on-bgsave-error")
    except ResponseError:  # a hosted server may forbid CONFIG; its default is yes
        return True
    save = await redis.config_get("save")
    return bool(save.get("save")) and found.get("stop-writes-on-bgsave-error") == "yes"
