"""The validated settings of a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fairlane.model.catalog import Catalog
from fairlane.model.celery_bridge import CeleryBridge
from fairlane.model.endpoint import Endpoint

Mode = Literal["embedded", "shared", "cluster"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "text"]
"""`auto` is text on a terminal and JSON elsewhere."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the API listens and where the ledger is. Times are seconds, sizes bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    data: Path = Path(".fairlane")
    database_url: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_body: int = 1 << 20
    body_timeout: float = 15
    key_rate: int = 60_000
    lease: float = 15
    grace: float = 30
    submits: int = 256
    connections: int = 10_000
    access_log: bool = False
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    wait_for_stores: float = 60
    unsafe: bool = False
    simulated_speed: float = 0

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def mode(self) -> Mode:
        if self.database_url is None:
            return "embedded"
        return "shared" if self.redis_url is None else "cluster"

    @property
    def ledger(self) -> Path:
        """The file of an embedded ledger."""
        return self.data / "ledger.db"


@dataclass(frozen=True, slots=True)
class PrioritySource:
    """The Priority Service that knows users' tiers. Times are seconds."""

    url: str
    fallback: str
    timeout: float = 1
    cache: float = 60
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Where webhooks may go. `private` lists hosts that may have a private address."""

    ports: tuple[int, ...] = (443,)
    private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CeleryLoads:
    """Where the lease store of balanced Celery queues is. Without a URL there is none."""

    redis_url: str | None = field(default=None, repr=False)
    key_prefix: str = "fairlane:celery:"


@dataclass(frozen=True, slots=True)
class Settings:
    """`notes` are remarks that are not mistakes."""

    catalog: Catalog
    server: ServerSettings = field(default_factory=ServerSettings)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    priority: PrioritySource | None = None
    callbacks: Callbacks = field(default_factory=Callbacks)
    celery: CeleryLoads = field(default_factory=CeleryLoads)
    celery_bridge: CeleryBridge | None = None
    source: str = "preset tasks"
    notes: tuple[str, ...] = ()
