"""Private servers: the real ones, started for as long as they are needed."""

from fairlane.servers.private import Databases, Keys, Postgres, Redis, Sentinel
from fairlane.servers.process import Server, ServerFailed

__all__ = ["Databases", "Keys", "Postgres", "Redis", "Sentinel", "Server", "ServerFailed"]
