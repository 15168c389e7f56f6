"""The items of batched ledger operations (data transfer objects)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from fairlane.ledger.messages import PoolLimit, Request, SettingChange
from fairlane.model.job import Progress
from fairlane.model.state import Move
from fairlane.policy.quotas import Quota


# --- moves from outside --------------------------------------------------------------------------
class CancelRequest(NamedTuple):
    request: Request
    strict: Container[str]


class ReopenRequest(NamedTuple):
    request: Request
    move: Move
    quota: Quota | None


class StopRequest(NamedTuple):
    """A fan-out that is marked to be stopped."""

    parent: str
    now: int
    strict: Container[str]


class SkipCommand(NamedTuple):
    request: Request
    price: int


# --- leases --------------------------------------------------------------------------------------
class RenewRequest(NamedTuple):
    tokens: Sequence[tuple[str, str]]
    until: int
    now: int


class ProgressReport(NamedTuple):
    job: str
    token: str
    progress: Progress


class StartMove(NamedTuple):
    job: str
    token: str
    at: int


class Promotion(NamedTuple):
    job: str
    level: str
    ranks: dict[str, int]
    now: int

    def is_news(self, told: str) -> bool:
        return self.ranks[self.level] < self.ranks.get(told, len(self.ranks))


class UnconfirmedProposal(NamedTuple):
    """A proposal that has not been confirmed in time."""

    job: str
    rev: int
    token: str


# --- what all processes share --------------------------------------------------------------------
class LimitsChange(NamedTuple):
    """A change of limits, made only if the settings in force are number `over`. `catalog` and
    `file` are texts."""

    pools: Sequence[PoolLimit]
    catalog: str
    file: str
    over: int
    change: SettingChange | None


MAX_ADDED_POOLS = 1_000
"""Above this number of added pools, idle ones are deleted."""


class AddedPools(NamedTuple):
    """Pools to limit beside the configured ones, only if the settings in force are number
    `over`."""

    pools: Sequence[PoolLimit]
    configured: Sequence[str]
    over: int


class RebuildRequest(NamedTuple):
    life: str
    over: int


class Extension(NamedTuple):
    life: str
    done: bool


# --- users, money, retention ---------------------------------------------------------------------
class TierChange(NamedTuple):
    tenant: str
    user: str
    tier: str
    now: int
    actor: str


class QuotaChange(NamedTuple):
    tenant: str
    user: str
    pending: int | None
    per_hour: int | None
    now: int
    actor: str


class Grant(NamedTuple):
    tenant: str
    user: str
    amount: int
    operation: str
    now: int
    note: str
    actor: str


class KeyUsers(NamedTuple):
    """Users that an API key names, to be counted if at most `limit` users of this key count."""

    tenant: str
    key: str
    users: Sequence[str]
    limit: int
    now: int


class Purge(NamedTuple):
    tenant: str
    jobs: Sequence[str]
    now: int
    actor: str


class Retirement(NamedTuple):
    finished_before: int
    dead_before: int
    keys_before: int
    limit: int
