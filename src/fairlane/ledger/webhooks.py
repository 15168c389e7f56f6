"""Webhooks in the ledger: the interface that both ledgers implement."""

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
    """How one store does it: `any_due`, `listed` and `secrets` read, the others write."""

    any_due: Callable[..., Any]
    due: Callable[..., Any]
    again: Callable[..., Any]
    over: Callable[..., Any]
    listed: Callable[..., Any]
    forget: Callable[..., Any]
    secrets: Callable[..., Any]
    keep_secret: Callable[..., Any]


class Webhooks:
    """Rows come with the end of a job; here they are handed out and ended."""

    def __init__(self, write: Write, read: Read, verbs: WebhookVerbs) -> None:
        self._write, self._read, self._verbs = write, read, verbs

    async def due(self, now: int, hold_until: int, limit: int) -> list[Webhook]:
        """Those to try now, longest due first, each to one asker until `hold_until`. A job's second
        one waits for its first. Those to receivers that want no more are over."""
        if not await self._read(self._verbs.any_due, now):
            return []
        found: list[Webhook] = await self._write(self._verbs.due, (now, hold_until, limit))
        return found

    async def again(self, webhook: str, tries: int, at: int) -> None:
        """It failed so often, and is tried again then."""
        await self._write(self._verbs.again, WebhookRetry(webhook, tries, at))

    async def over(self, webhook: str, how: Delivery, now: int) -> None:
        await self._write(self._verbs.over, WebhookEnd(webhook, how, now))

    async def listed(self, limit: int) -> list[tuple[Webhook, Delivery | None]]:
        """The latest ends and how their webhooks stand (None = not over), oldest first."""
        rows = await self._read(self._verbs.listed, limit)
        found = [(webhook(row[:-1]), Delivery(row[-1]) if row[-1] else None) for row in rows]
        return found[::-1]

    async def forget(self, before: int, limit: int) -> int:
        """Those that were over before that are gone, so many at the most; how many."""
        found: int = await self._write(self._verbs.forget, (before, limit))
        return found

    async def secrets(self, tenant: str, now: int) -> list[str]:
        """What to sign with, the newest first."""
        found: list[str] = await self._read(self._verbs.secrets, tenant, now)
        return found

    async def first_secret(self, tenant: str, secret: str, now: int) -> None:
        """The tenant's secret, unless it has one."""
        await self._write(self._verbs.keep_secret, NewWebhookSecret(tenant, secret, now, None))

    async def new_secret(
        self, tenant: str, secret: str, now: int, old_until: int, actor: str
    ) -> None:
        """The tenant's secret from now on, audited; the present one is signed with too until
        then."""
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
    def told(self) -> AuditedChange:
        """What the audit says of it."""
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
