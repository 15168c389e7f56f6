"""Webhook outbox in the ledger: the interface that both stores implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fairlane.ledger.messages import AuditedChange
from fairlane.ledger.rows import loads
from fairlane.ledger.running import Read, Write
from fairlane.model.job import Error
from fairlane.model.state import Code, State
from fairlane.model.webhook import Delivery, Webhook


class WebhookVerbs(NamedTuple):
    """The functions of one store: `any_due`, `listed` and `secrets` read, the rest write."""

    any_due: Callable[..., Any]
    due: Callable[..., Any]
    again: Callable[..., Any]
    over: Callable[..., Any]
    listed: Callable[..., Any]
    forget: Callable[..., Any]
    secrets: Callable[..., Any]
    keep_secret: Callable[..., Any]


class Webhooks:
    """Hands out webhook rows for delivery and ends them. A database trigger writes the rows when a
    job ends."""

    def __init__(self, write: Write, read: Read, verbs: WebhookVerbs) -> None:
        self._write, self._read, self._verbs = write, read, verbs

    async def due(self, now: int, hold_until: int, limit: int) -> list[Webhook]:
        """Webhooks to deliver now, longest due first, each leased to one caller until `hold_until`.
        A job's second webhook waits for its first. Webhooks to receivers that answered "gone" are
        ended."""
        if not await self._read(self._verbs.any_due, now):
            return []
        found: list[Webhook] = await self._write(self._verbs.due, (now, hold_until, limit))
        return found

    async def again(self, webhook: str, tries: int, at: int) -> None:
        """Retry a webhook that has failed `tries` times, at the time `at`."""
        await self._write(self._verbs.again, WebhookRetry(webhook, tries, at))

    async def over(self, webhook: str, how: Delivery, now: int) -> None:
        await self._write(self._verbs.over, WebhookEnd(webhook, how, now))

    async def listed(self, limit: int) -> list[tuple[Webhook, Delivery | None]]:
        """The latest webhooks and their outcomes (None = not over), oldest first."""
        rows = await self._read(self._verbs.listed, limit)
        found = [(webhook(row[:-1]), Delivery(row[-1]) if row[-1] else None) for row in rows]
        return found[::-1]

    async def forget(self, before: int, limit: int) -> int:
        """Delete webhooks that were over before that, at most `limit`. Returns how many."""
        found: int = await self._write(self._verbs.forget, (before, limit))
        return found

    async def secrets(self, tenant: str, now: int) -> list[str]:
        """The secrets to sign with, newest first."""
        found: list[str] = await self._read(self._verbs.secrets, tenant, now)
        return found

    async def first_secret(self, tenant: str, secret: str, now: int) -> None:
        """Set the tenant's secret, unless it has one."""
        await self._write(self._verbs.keep_secret, NewWebhookSecret(tenant, secret, now, None))

    async def new_secret(
        self, tenant: str, secret: str, now: int, old_until: int, actor: str
    ) -> None:
        """Rotate the tenant's secret, audited. Deliveries are signed with the present secret, too,
        until `old_until`."""
        await self._write(
            self._verbs.keep_secret, NewWebhookSecret(tenant, secret, now, old_until, actor)
        )


class WebhookRetry(NamedTuple):
    webhook: str
    tries: int
    at: int


class WebhookEnd(NamedTuple):
    webhook: str
    how: Delivery
    now: int


class NewWebhookSecret(NamedTuple):
    tenant: str
    secret: str
    now: int
    old_until: int | None
    actor: str = ""

    @property
    def audit_record(self) -> AuditedChange:
        """The audit record of a rotation."""
        return AuditedChange(self.now, self.actor, "rotate webhook secret", self.tenant, None, None)


WEBHOOK = (
    "id, job, tenant, url, state, name, user, tags, error_code, error_message, ended_at, tries"
)


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
