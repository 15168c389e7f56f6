"""What the gateway keeps in the ledger beside jobs. One guarantee a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fairlane.ledger.rows import loads
from fairlane.model.job import Error
from fairlane.model.state import Code, State
from fairlane.model.webhook import Delivery, Webhook


class KnownTiers(Protocol):
    """What somebody else said about users, kept for when they do not answer."""

    async def get(self, tenant: str, users: Sequence[str]) -> dict[str, str]:
        """What was last said, of those about whom something was."""

    async def put(self, tenant: str, tiers: Mapping[str, str], now: int) -> None: ...


class Webhooks(Protocol):
    """Rows come with the end of a job; here they are handed out and ended."""

    async def due(self, now: int, hold_until: int, limit: int) -> list[Webhook]:
        """Those to try now, oldest first, each to one asker until `hold_until`. A job's second one
        waits for its first. Those to receivers that want no more are over."""

    async def again(self, webhook: str, tries: int, at: int) -> None:
        """It failed so often, and is tried again then."""

    async def over(self, webhook: str, how: Delivery, now: int) -> None: ...

    async def listed(self, limit: int) -> list[tuple[Webhook, Delivery | None]]:
        """The latest ends and how their webhooks stand (None = not over), oldest first."""

    async def forget(self, before: int, limit: int) -> int:
        """Those that were over before that are gone, so many at the most; how many."""

    async def secrets(self, tenant: str, now: int) -> list[str]:
        """What to sign with, the newest first."""

    async def first_secret(self, tenant: str, secret: str, now: int) -> None:
        """The tenant's secret, unless it has one."""

    async def new_secret(self, tenant: str, secret: str, now: int, old_until: int) -> None:
        """The tenant's secret from now on; the present one is signed with too until then."""


class Again(NamedTuple):
    webhook: str
    tries: int
    at: int


class Over(NamedTuple):
    webhook: str
    how: Delivery
    now: int


class NewSecret(NamedTuple):
    tenant: str
    secret: str
    now: int
    old_until: int | None


WEBHOOK = (
    "id, job, tenant, url, state, name, user, tags, error_code, error_message, ended_at, tries"
)


def listed(rows: Iterable[Sequence[Any]]) -> list[tuple[Webhook, Delivery | None]]:
    """From rows of a webhook and its outcome, the latest first."""
    found = [(webhook(row[:-1]), Delivery(row[-1]) if row[-1] else None) for row in rows]
    return found[::-1]


def webhook(row: Iterable[Any]) -> Webhook:
    id_, job, tenant, url, state, name, user, tags, code, message, ended_at, tries = row
    return Webhook(
        id_,
        job,
        tenant,
        url,
        State(state),
        name,
        user,
        tuple(loads(tags)) if tags else (),
        Error(Code(code), message or "") if code else None,
        ended_at,
        tries,
    )
