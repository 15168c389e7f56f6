"""Private PostgreSQL and Redis servers: real servers that run only as long as they are needed."""

from fairlane.servers.private import Databases, Postgres, Redis, RedisKeyspace, Sentinel
from fairlane.servers.process import ServerFailed, ServerProcess

__all__ = [
    "Databases",
    "Postgres",
    "Redis",
    "RedisKeyspace",
    "Sentinel",
    "ServerFailed",
    "ServerProcess",
]
