"""The users of the generation demo: visitors of five tiers who generate, pay for skips, cancel."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlane.clock import SystemClock
from fairlane.demo.api_client import DemoClient
from fairlane.presets import generation

TIER_SHARES = {"admin": 4, "creator": 9, "premium": 14, "supporter": 25, "free": 48}
"""Of a hundred new users."""

MODELS = ("music", "audio")
RETURNING_RATE = 0.25
"""The share of visits by users who have been here before."""

MOST_REQUESTS = 4
"""Requests of one visit. A free user may have two jobs in the queue."""

TOO_LONG_RATE = 0.08
"""The share of requests with a longer duration than the tier has."""

SHORTEST_DURATION, MEAN_MORE_DURATION = 5, 20
"""Seconds that a user asks for at least, and on average beyond that, up to the tier's limit."""

SKIP_RATE, CANCEL_RATE = 0.15, 0.08
SKIP_AT_POSITION = 3
"""A user closer to the front does not pay for a skip."""

MEAN_SECONDS_BETWEEN_VISITS = 24
"""Simulated seconds, on average, between two visits."""

ENOUGH_WAITING = 20
"""No more visits begin while this many jobs wait."""


class AcceptedJob(NamedTuple):
    tier: str
    model: str
    at: float
    """Unix time in seconds."""


@dataclass
class Visits:
    """What the users have observed so far."""

    accepted: dict[str, AcceptedJob] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By tier and code."""

    cancelled: set[str] = field(default_factory=set)
    skips: int = 0
    paid: int = 0
    refunded: int = 0
    waiting: int = 0
    """Waiting jobs, as the API told last."""


class Visitors:
    """Users that come from time to time. Operation keys make it safe to repeat a purchase."""

    def __init__(self, visits: Visits, client: DemoClient, speed: float) -> None:
        self._visits, self._client, self._speed = visits, client, speed
        self._chance, self._run = random.Random(7), uuid.uuid4().hex[:6]
        self._users: list[tuple[str, str]] = []
        self._longest = {tier.name: tier.max_duration for tier in generation().tiers.all}

    async def come(self) -> None:
        for tier in reversed(TIER_SHARES):  # the picture has all tiers at once
            await self._visit(await self._new_user(tier))
        while True:
            pause = MEAN_SECONDS_BETWEEN_VISITS / self._speed
            await asyncio.sleep(self._chance.expovariate(1 / pause))
            if self._visits.waiting < ENOUGH_WAITING:
                await self._visit(await self._user())

    async def _visit(self, who: tuple[str, str]) -> None:
        user, tier = who
        for _ in range(self._chance.randint(1, MOST_REQUESTS)):
            job, position = await self._generate(user, tier)
            if not job:
                continue
            if position >= SKIP_AT_POSITION and self._chance.random() < SKIP_RATE:
                await self._skip(user, job)
            if self._chance.random() < CANCEL_RATE:
                await self._cancel(user, job)

    async def _user(self) -> tuple[str, str]:
        """A user and the tier: one who has been here, or a new one."""
        if self._chance.random() < RETURNING_RATE:
            return self._chance.choice(self._users)
        (tier,) = self._chance.choices(list(TIER_SHARES), list(TIER_SHARES.values()))
        return await self._new_user(tier)

    async def _new_user(self, tier: str) -> tuple[str, str]:
        """The tier is set as a shop would do it."""
        user = f"visitor-{self._run}-{len(self._users) + 1}"
        await self._client.ask("PUT", f"/admin/users/{user}", {"priority": tier})
        self._users.append((user, tier))
        return user, tier

    async def _generate(self, user: str, tier: str) -> tuple[str, int]:
        """The job and its position; no job if it was refused."""
        asked: dict[str, Any] = {
            "user_id": user,
            "model": self._chance.choice(MODELS),
            "prompt": "a heron at dawn",
            "duration": self._duration(tier),
        }
        answer = await self._client.ask("POST", "/generate", asked)
        if "job_id" not in answer.body:
            self._visits.refused[tier, answer.body.get("code", str(answer.status))] += 1
            return "", 0
        job = str(answer.body["job_id"])
        self._visits.accepted[job] = AcceptedJob(tier, asked["model"], SystemClock().now() / 1e6)
        return job, answer.body["position"] or 0

    def _duration(self, tier: str) -> int:
        longest = int(self._longest[tier])
        if longest and self._chance.random() < TOO_LONG_RATE:
            return longest + 30
        wish = SHORTEST_DURATION + round(self._chance.expovariate(1 / MEAN_MORE_DURATION))
        return min(wish, longest) if longest else wish

    async def _skip(self, user: str, job: str) -> None:
        """Reads the quote, buys what it costs, and pays."""
        quote = await self._client.ask("GET", f"/api/v1/jobs/{job}/skip")
        if quote.status != 200:  # it runs already
            return
        bought = {"amount": quote.body["price"], "operation_key": f"bought-for-{job}"}
        await self._client.ask("POST", f"/admin/users/{user}/credits", bought)
        most = {"max_price": quote.body["price"]}
        answer = await self._client.ask("POST", f"/api/v1/jobs/{job}/skip", most)
        if answer.status == 200:
            self._visits.skips += 1
            self._visits.paid += answer.body["price"]

    async def _cancel(self, user: str, job: str) -> None:
        answer = await self._client.ask("DELETE", f"/generate/{job}")
        if answer.status != 200:
            return
        self._visits.cancelled.add(job)
        statement = await self._client.ask("GET", f"/api/v1/users/{user}/statement")
        self._visits.refunded += sum(
            entry["amount"]
            for entry in statement.body["entries"]
            if (entry["kind"], entry["job_id"]) == ("refund", job)
        )
