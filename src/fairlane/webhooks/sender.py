"""Webhook delivery with signatures: at least once, retried for days."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING

import orjson
from yarl import URL

from fairlane.engine import Engine
from fairlane.errors import UrlNotAllowed
from fairlane.model.webhook import Delivery, Webhook
from fairlane.units import SECOND
from fairlane.webhooks.signature import secrets_of, signed
from fairlane.webhooks.ssrf import SsrfGuard

if TYPE_CHECKING:
    from fairlane.webhooks.post import Post

log = logging.getLogger("fairlane")

SCHEDULE = tuple(
    seconds * SECOND for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
)
"""How long after each failure it is tried again."""

JITTER = 0.1
DELIVERY_TIMEOUT_SECONDS = 10.0
"""Seconds a delivery may take, with finding the host."""

HOLD_MICROSECONDS = 60 * SECOND
"""How long a sender has a webhook to itself: one that dies is followed by another."""

MAX_CONCURRENT_DELIVERIES = 64
CHECK_MICROSECONDS = SECOND
RETENTION_MICROSECONDS = 7 * 86_400 * SECOND
RETENTION_BATCH = 500


class RetryLater(Enum):
    """Not delivered; worth another try."""

    AGAIN = "again"


class WebhookSender:
    """Use it as `async with WebhookSender(engine, Egress())`. Any number may run: each webhook is
    one sender's at a time. Receivers show a certificate that the machine, or `SSL_CERT_FILE`,
    trusts."""

    def __init__(
        self, engine: Engine, egress: SsrfGuard | None = None, *, seed: int | None = None
    ) -> None:
        self._engine, self._egress = engine, egress or SsrfGuard()
        self._jitter = random.Random(seed)
        self._post: Post | None = None
        self._loading = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> WebhookSender:
        self._loop = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """What is under way is finished: it takes seconds, and would be sent twice otherwise."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self.idle()

    async def _run(self) -> None:
        engine = self._engine
        rounds = 0
        while True:
            try:
                await self.send_due()
                if rounds % 600 == 0:
                    await engine.webhooks.forget(
                        engine.clock.now() - RETENTION_MICROSECONDS, RETENTION_BATCH
                    )
            except Exception as error:  # noqa: BLE001 - the ledger is away: it will be back
                log.warning("webhooks wait: %r", error)
            rounds += 1
            await engine.clock.sleep(CHECK_MICROSECONDS)

    async def send_due(self) -> int:
        """Begin with those that are due, as many as there is room for; how many."""
        now, room = self._engine.clock.now(), MAX_CONCURRENT_DELIVERIES - len(self._sending)
        if room <= 0:
            return 0
        due = await self._engine.webhooks.due(now, now + HOLD_MICROSECONDS, room)
        for webhook in due:
            task = asyncio.create_task(self._send(webhook))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return len(due)

    async def idle(self) -> None:
        """Returns when everything begun so far has been tried."""
        await asyncio.gather(*self._sending)

    async def _send(self, webhook: Webhook) -> None:
        engine = self._engine
        try:
            outcome = await self._deliver(webhook)
            if isinstance(outcome, Delivery):
                await engine.webhooks.over(webhook.id, outcome, engine.clock.now())
            elif webhook.tries >= len(SCHEDULE):
                log.warning("webhook %s is given up", webhook.id)
                await engine.webhooks.over(webhook.id, Delivery.FAILED, engine.clock.now())
            else:
                delay = SCHEDULE[webhook.tries]
                delay += round(delay * JITTER * self._jitter.random())
                await engine.webhooks.again(
                    webhook.id, webhook.tries + 1, engine.clock.now() + delay
                )
        except Exception:
            log.exception("webhook %s will be sent again", webhook.id)

    async def _deliver(self, webhook: Webhook) -> Delivery | RetryLater:
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_SECONDS):
                egress = await self._allowed()
                url = egress.check(webhook.url)
                status = await self._sent(webhook, url, await egress.addresses(url))
        except UrlNotAllowed as reason:
            log.warning("webhook %s is blocked: %s", webhook.id, reason)
            return Delivery.BLOCKED
        except (OSError, TimeoutError) as error:
            log.info("webhook %s failed: %s", webhook.id, type(error.__cause__ or error).__name__)
            return RetryLater.AGAIN
        if status == 410:
            return Delivery.GONE
        return Delivery.DELIVERED if 200 <= status < 300 else RetryLater.AGAIN

    async def _allowed(self) -> SsrfGuard:
        """Development ends with the first key, also for what was accepted before."""
        if self._egress.development and await self._engine.api_keys.any():
            self._egress = self._egress.with_keys()
        return self._egress

    async def _sent(self, webhook: Webhook, url: URL, addresses: list[str]) -> int:
        """The status. What else is answered, nobody reads."""
        body = body_of(webhook)
        secrets = await secrets_of(self._engine, webhook.tenant)
        headers = signed(webhook.id, self._engine.clock.now() // SECOND, body, secrets)
        async with self._loading:  # many queues send none, and what sends them takes ten megabytes
            if self._post is None:
                self._post = await asyncio.to_thread(_load)
        return await self._post.send(url, addresses, body, headers)


def _load() -> Post:
    from fairlane.webhooks.post import Post

    return Post()


def body_of(webhook: Webhook) -> bytes:
    """The same bytes at every try. Results are fetched, not sent: they may be large, and whoever
    reads them shows a key."""
    error = webhook.error
    at = datetime.fromtimestamp(webhook.ended_at / SECOND, UTC)
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
    return orjson.dumps(
        {
            "type": f"job.{webhook.state}",
            "timestamp": stamp,
            "data": {
                "job_id": webhook.job,
                "status": webhook.state,
                "feature_name": webhook.name,
                "user_id": webhook.user,
                "finished_at": stamp,
                "tags": webhook.tags,
                "error": None
                if error is None
                else {
                    "code": error.code,
                    "message": error.message,
                    "resumable": error.resumable,
                },
            },
        }
    )
