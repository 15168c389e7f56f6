"""Webhook delivery with signatures, from the outbox: at least once, with retries for about three
days."""

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
"""Microseconds between each failed delivery and the next try."""

JITTER = 0.1
DELIVERY_TIMEOUT_SECONDS = 10.0
"""The timeout of one delivery, DNS lookup included."""

HOLD_MICROSECONDS = 60 * SECOND
"""How long a sender leases a webhook. If the sender dies, another sender takes it after that."""

MAX_CONCURRENT_DELIVERIES = 64
CHECK_MICROSECONDS = SECOND
RETENTION_MICROSECONDS = 7 * 86_400 * SECOND
RETENTION_BATCH = 500


class RetryLater(Enum):
    """The delivery failed and is to be retried."""

    AGAIN = "again"


class WebhookSender:
    """Use it as `async with WebhookSender(engine, SsrfGuard())`. Any number of senders may run: a
    webhook is leased to one sender at a time. A receiver needs a TLS certificate that the machine,
    or `SSL_CERT_FILE`, trusts."""

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
        """Waits for running deliveries. They take seconds, and would be sent twice if cancelled."""
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
            except Exception as error:  # noqa: BLE001 - the ledger is unavailable: retry
                log.warning("webhooks wait: %r", error)
            rounds += 1
            await engine.clock.sleep(CHECK_MICROSECONDS)

    async def send_due(self) -> int:
        """Starts the deliveries that are due, up to the concurrency limit. Returns their number."""
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
        """Returns when every delivery that was started has ended."""
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
        """The first API key ends development mode, also for webhooks that were accepted before."""
        if self._egress.development and await self._engine.api_keys.any():
            self._egress = self._egress.with_keys()
        return self._egress

    async def _sent(self, webhook: Webhook, url: URL, addresses: list[str]) -> int:
        """Sends the webhook and returns the HTTP status. The response body is not read."""
        body = body_of(webhook)
        secrets = await secrets_of(self._engine, webhook.tenant)
        headers = signed(webhook.id, self._engine.clock.now() // SECOND, body, secrets)
        async with self._loading:  # loaded on first use: aiohttp takes ten megabytes of memory
            if self._post is None:
                self._post = await asyncio.to_thread(_load)
        return await self._post.send(url, addresses, body, headers)


def _load() -> Post:
    from fairlane.webhooks.post import Post

    return Post()


def body_of(webhook: Webhook) -> bytes:
    """Returns the body, which is the same at every try. Results are not in it: they may be large,
    and reading them requires an API key."""
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
