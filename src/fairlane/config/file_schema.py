"""The configuration file: the schema of `fairlane.toml`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from fairlane.config.settings import LogFormat, LogLevel
from fairlane.model.celery_bridge import DEFAULT_QUEUE
from fairlane.model.setting_bounds import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_INTERVAL_SECONDS,
    MAX_SECONDS,
    MAX_WAITING_JOBS,
    MIN_TIER_SHARE,
)

RATE = re.compile(r"^\s*(\d{1,15})\s*(?:/\s*(s|m|h|sec|min|hour|second|minute)\s*)?$")
PER_MINUTE = {"s": 60, "m": 1, "h": 1 / 60}


def per_minute(value: object) -> object:
    """`600`, "600/m", "10/s" and "36000/h" all mean 600 a minute."""
    if not isinstance(value, str):
        return value
    found = RATE.match(value)
    if found is None:
        raise ValueError('a rate is a number per minute: 600, "600/m", "10/s" or "36000/h"')
    rate = int(found[1]) * PER_MINUTE[(found[2] or "m")[0]]
    if rate != int(rate):
        raise ValueError(f"a rate is a whole number per minute, and {value} is {rate:g} per minute")
    return int(rate)


def words(value: object) -> object:
    """A list, or words separated by commas, as in an environment variable."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def skip_price(value: object) -> object:
    """A pair of seconds and credits."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("the price of a skip is [seconds, credits], such as [10, 1]")
    return tuple(value)


def address(value: str) -> str:
    found = re.match(r"^https?://(?P<host>[^/?#\s]+)", value)
    if found is None:
        raise ValueError("a URL begins with http:// or https:// and names a host")
    if "@" in found["host"]:
        raise ValueError('a URL must not contain a password; put it into headers, as "env:NAME"')
    if "?" in value or "#" in value:
        raise ValueError("a URL has no query and no fragment; Fairlane adds its own path")
    try:
        port = urlsplit(value).port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("the port of a URL is a number from 1 to 65535")
    return value.rstrip("/")


Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Number = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Waiting = Annotated[int, Field(ge=0, le=MAX_WAITING_JOBS)]
Bytes = Annotated[int, Field(ge=1, le=MAX_BYTES)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Interval = Annotated[float, Field(ge=0, le=MAX_INTERVAL_SECONDS, allow_inf_nan=False)]
Patience = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Rate = Annotated[int, BeforeValidator(per_minute), Field(ge=0, le=MAX_COUNT)]
Words = Annotated[list[str], BeforeValidator(words)]
Address = Annotated[str, AfterValidator(address)]
Headers = dict[str, str]
SkipPrice = Annotated[tuple[Patience, Number], BeforeValidator(skip_price)]


class Table(BaseModel):
    """A value of another type and an unknown name are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ServerTable(Table):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    data: str = ".fairlane"
    database_url: str | None = None
    redis_url: str | None = None
    allowed_hosts: Words = []
    trusted_proxies: Words = []
    origins: Words = []
    max_body: Annotated[int, Field(ge=1024, le=MAX_BYTES)] = 1 << 20
    body_timeout: Patience = 15
    key_rate: Rate = 60_000
    lease: Annotated[float, Field(ge=2, le=600, allow_inf_nan=False)] = 15
    grace: Seconds = 30
    submits: Number = 256
    connections: Number = 10_000
    access_log: bool = False
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    wait_for_stores: Seconds = 60
    unsafe: bool = False
    simulated_speed: Seconds = 0


class TierTable(Table):
    promote: dict[str, Seconds] = {}
    max_retries: Count = 3
    timeout: Patience = 600
    pending: Count = 0
    per_hour: Count = 0
    max_duration: Seconds = 0
    max_running_per_user: Count = 0
    target: Seconds = 0


class TiersTable(BaseModel):
    """`order` and `default` beside one table per tier."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, TierTable] = Field(init=False)

    order: Words = ["high", "medium", "low"]
    default: str | None = None

    @property
    def named(self) -> dict[str, TierTable]:
        return self.__pydantic_extra__ or {}


class RegionTable(Table):
    url: Address | None = None
    limit: Count = 0


class SharesTable(Table):
    skip: Annotated[int, Field(ge=0, le=1000)] = 500
    front: Annotated[int, Field(ge=0, le=1000)] = 200
    aged: Annotated[int, Field(ge=0, le=1000)] = 250


class TaskTable(Table):
    """The settings of a service except its endpoint."""

    limit: Count = 0
    rate: Rate = 0
    waiting: Waiting = 0
    timeout: Seconds = 0
    max_wait: Seconds = 0
    max_attempts: Count = 0
    backoff: list[Seconds] = []
    retry_place: Literal["back", "front"] = "back"
    overrun: Literal["strict", "fast"] | None = None
    affinity: Literal["residency", "batch", "none"] = "residency"
    batch_size: Number = 3
    model_load: Seconds = 3.5
    fairness: Literal["user", "none"] = "user"
    shares: SharesTable = SharesTable()
    capabilities: Words = []


class QualityCheckTable(Table):
    """Which service checks the output: one at this url, a configured one, or (with neither) a pull
    worker."""

    url: Address | None = None
    service: str | None = None
    on_fail: Literal["retry", "fail", "mark"] = "retry"
    limit: Count = 0
    timeout: Seconds = 60
    max_attempts: Count = 3
    headers: Headers = {}


class ServiceTable(TaskTable):
    executor: Literal["http", "pull", "celery", "caller"] | None = None
    celery_task: Annotated[str, Field(pattern=r"^\S+$", max_length=200)] | None = None
    celery_queue: Annotated[str, Field(pattern=r"^\S+$", max_length=200)] = DEFAULT_QUEUE
    url: Address | None = None
    headers: Headers = {}
    max_response: Bytes = 8 << 20
    retry_on: list[Annotated[int, Field(ge=400, le=599)]] = []
    cancel_path: Annotated[str, Field(pattern=r"^/[^?#\s]*$", max_length=200)] | None = None
    failover: bool = False
    provider: str | None = None
    regions: dict[str, RegionTable] = {}
    paused: bool = False
    quality_check: QualityCheckTable | None = None


class ProviderTable(Table):
    limit: Count = 0
    rate: Rate = 0


class LimitsTable(Table):
    waiting: Waiting = 1_000_000
    input_bytes: Bytes = 1 << 20
    result_bytes: Bytes = 8 << 20
    context_bytes: Bytes = 32 << 20
    cells: Number = 10_000
    keep_finished: Seconds = 7 * 86_400
    keep_dead: Seconds = 30 * 86_400
    keep_keys: Seconds = 86_400
    cleanup_interval: Interval = 10
    lowest_tier_share: Annotated[float, Field(ge=MIN_TIER_SHARE, le=1)] = 0.5
    users_per_key: Count = 10_000


class CreditsTable(Table):
    currency: str = "aura"
    skip_prices: list[SkipPrice] = [(10, 1), (30, 3), (60, 5), (120, 10)]
    longer_skip_price: Number = 15


class PriorityTable(Table):
    url: Address | None = None
    timeout: Patience = 1
    cache: Seconds = 60
    fallback: str = "medium"
    headers: Headers = {}


class CallbacksTable(Table):
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = [443]
    private: Words = []


class CeleryTable(Table):
    redis_url: str | None = None
    key_prefix: str = "fairlane:celery:"
    broker_url: str | None = None
    result_backend: str | None = None
    start_timeout: Patience = 60
    broker_transport_options: dict[str, Any] = {}
    result_backend_transport_options: dict[str, Any] = {}


class File(Table):
    server: ServerTable = ServerTable()
    tiers: TiersTable = TiersTable()
    services: dict[str, ServiceTable] = {}
    providers: dict[str, ProviderTable] = {}
    pipelines: dict[str, list[str]] = {}
    tasks: TaskTable | None = None
    limits: LimitsTable = LimitsTable()
    credits: CreditsTable = CreditsTable()
    priority: PriorityTable = PriorityTable()
    callbacks: CallbacksTable = CallbacksTable()
    celery: CeleryTable = CeleryTable()
