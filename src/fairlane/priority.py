"""The client of the Priority Service, an external HTTP service that names a user's tier. It has a
cache and a circuit breaker. During an outage the last known tier applies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
import orjson
from yarl import URL

from fairlane.clock import seconds
from fairlane.engine import Engine
from fairlane.errors import SetupError
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

MAX_CONCURRENT_REQUESTS = 32
MAX_ANSWER_BYTES = 1 << 16
MAX_CACHED_USERS = 100_000
OPEN_AFTER_FAILURES = 3
OPEN_MICROSECONDS = 5 * SECOND
"""The circuit breaker stays open for this many microseconds after `OPEN_AFTER_FAILURES` failures
in a row. Without it every submit would wait for a request timeout."""

WARNING_INTERVAL_MICROSECONDS = 60 * SECOND


class PriorityAnswer(NamedTuple):
    """A cached tier. `said` is false if the service does not know the user: then `tier` is the
    last known tier or the fallback. `at` is in microseconds."""

    tier: str
    at: int
    said: bool


class PriorityServiceUnreachable(Exception):
    """The service named no tier. Internal to this module: callers get the last known tier."""


class UnknownUser(Exception):
    """The service answered 404 for this user. Internal to this module."""


class PriorityService:
    """Use it as `async with PriorityService(engine, url)`. Submits that name no tier then take the
    tier that the service names. An outage or a 404 changes no user's tier: the last named tier
    applies without a time limit, also after a restart. A user the service has never named gets the
    tier stored in the ledger, else the fallback. The fallback is not stored."""

    def __init__(
        self,
        engine: Engine,
        url: str,
        *,
        fallback: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 1,
        fresh: float = 60,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise SetupError("the Priority Service's url must begin with http:// or https://")
        tiers = engine.catalog.tiers
        self._engine, self._url = engine, url.rstrip("/")
        self._fallback = fallback or tiers.default
        tiers.rank(self._fallback)
        self._headers, self._timeout, self._fresh = dict(headers or {}), timeout, seconds(fresh)
        self._answers: dict[tuple[str, str], PriorityAnswer] = {}
        self._requests: dict[tuple[str, str], asyncio.Task[str]] = {}
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._failures, self._ask_again_at = 0, 0
        self._outage_since: int | None = None
        self._next_warning_at = 0
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> PriorityService:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._engine.use_tier_source(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._engine.use_tier_source(None)
        for task in list(self._requests.values()):
            task.cancel()
        await asyncio.gather(*self._requests.values(), return_exceptions=True)
        await self._session.close()

    async def tiers_of(self, tenant: str, users: Collection[str]) -> dict[str, str]:
        """Returns the tier of every user within the request timeout, also during an outage."""
        wanted = sorted(set(users))
        found = await asyncio.gather(*(self._tier_of(tenant, user) for user in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _tier_of(self, tenant: str, user: str) -> str:
        """Concurrent callers for one user share one request. A cancelled caller does not cancel
        that request."""
        who, now = (tenant, user), self._engine.clock.now()
        known = self._answers.get(who)
        if known is not None and now - known.at < self._fresh:
            return known.tier
        task = self._requests.get(who)
        if task is None:
            task = self._requests[who] = asyncio.create_task(self._fetch(tenant, user))
            task.add_done_callback(lambda _: self._requests.pop(who, None))
        return await asyncio.shield(task)

    async def _fetch(self, tenant: str, user: str) -> str:
        try:
            tier = await self._ask(user)
        except UnknownUser:
            tier = await self._last_known(tenant, user)
            self._keep(tenant, user, tier, said=False)
            return tier
        except PriorityServiceUnreachable:
            return await self._last_known(tenant, user)
        known = self._keep(tenant, user, tier, said=True)
        if known is None or known.tier != tier or not known.said:
            await self._remember(tenant, user, tier)
        return tier

    def _keep(self, tenant: str, user: str, tier: str, *, said: bool) -> PriorityAnswer | None:
        """Stores the answer in the cache, and returns the previous answer."""
        known = self._answers.pop((tenant, user), None)
        self._answers[tenant, user] = PriorityAnswer(tier, self._engine.clock.now(), said)
        if len(self._answers) > MAX_CACHED_USERS:
            del self._answers[next(iter(self._answers))]
        return known

    async def _ask(self, user: str) -> str:
        """Returns the tier that the service names for the user."""
        now = self._engine.clock.now()
        if now < self._ask_again_at:
            raise PriorityServiceUnreachable("it has not answered lately")
        if user in (".", ".."):
            raise PriorityServiceUnreachable("no address can name this user")
        try:
            async with self._concurrency:
                status, body = await self._get(user)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._failed(now)
            self._log_outage(now, type(error).__name__)
            raise PriorityServiceUnreachable(type(error).__name__) from error
        if status == 404:
            self._answered(now)
            raise UnknownUser
        tier = _tier_in(body) if status == 200 else None
        if tier is None or tier not in self._engine.catalog.tiers.names:
            self._failed(now)
            if status == 200:
                self._log_unknown_tier(now)
            else:
                self._log_outage(now, f"status {status}")
            raise PriorityServiceUnreachable(f"it answered {status} without a known tier")
        self._answered(now)
        return tier

    async def _get(self, user: str) -> tuple[int, bytes]:
        """Returns the HTTP status and the body. The body is empty if it is longer than
        `MAX_ANSWER_BYTES`."""
        url = URL(f"{self._url}/users/{quote(user, safe='')}/priority", encoded=True)
        async with self._session.get(url, allow_redirects=False) as response:
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    return response.status, b""
            return response.status, bytes(body)

    def _failed(self, now: int) -> None:
        self._failures += 1
        if self._failures >= OPEN_AFTER_FAILURES:
            self._ask_again_at = now + OPEN_MICROSECONDS

    def _answered(self, now: int) -> None:
        self._failures = 0
        if self._outage_since is not None:
            away = {"away_seconds": round((now - self._outage_since) / SECOND, 3)}
            log.warning("the Priority Service answers again", extra={"fields": away})
            self._outage_since = None

    def _log_outage(self, now: int, reason: str) -> None:
        """Logs once per outage, however many requests fail."""
        if self._outage_since is None:
            self._outage_since = now
            log.warning(
                "the Priority Service does not answer: the last known tiers hold",
                extra={"fields": {"reason": reason}},
            )

    def _log_unknown_tier(self, now: int) -> None:
        """Logs, at most once a minute, that the service named an unknown tier."""
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_INTERVAL_MICROSECONDS
            known = ", ".join(self._engine.catalog.tiers.names)
            log.warning(
                "the Priority Service names a tier that is not configured",
                extra={"fields": {"known": known}},
            )

    async def _last_known(self, tenant: str, user: str) -> str:
        engine, names = self._engine, self._engine.catalog.tiers.names
        answer = self._answers.get((tenant, user))
        said = answer.tier if answer is not None and answer.said else None
        if said is None:
            said = (await engine.known_tiers.get(tenant, [user])).get(user)
        if said not in names:
            said = await engine.tier_of(user, tenant)
        return said if said in names else self._fallback

    async def _remember(self, tenant: str, user: str, tier: str) -> None:
        engine = self._engine
        try:
            await engine.known_tiers.put(tenant, {user: tier}, engine.clock.now())
        except Exception as error:  # noqa: BLE001 - the tier is valid all the same
            log.warning("a tier was not remembered: %r", error)
            self._answers.pop((tenant, user), None)


def _tier_in(body: bytes) -> str | None:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    tier = said.get("priority") if isinstance(said, dict) else None
    return tier if isinstance(tier, str) else None
