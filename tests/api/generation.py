"""A generation queue to test with: one GPU, three tiers with limits, ten places."""

from __future__ import annotations

from typing import Any

import httpx2

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.service import Fairness, Service
from fairlane.model.tier import Tier, Tiers

TIERS = Tiers(
    [
        Tier("admin", {"admin": 30}),
        Tier("creator", {"admin": 45}, pending=3, max_duration=180),
        Tier("free", {"admin": 120}, pending=2, per_hour=3, max_duration=30),
    ],
    default="free",
)
GENERATION_QUEUE = Catalog(
    TIERS,
    [Service("generate", limit=1, fairness=Fairness.NONE), Service("other", max_attempts=1)],
    limits=Limits(waiting=10),
)
MUSIC = {"model": "music", "prompt": "a heron at dawn", "duration": 30}


async def generated(client: httpx2.AsyncClient, **more: Any) -> str:
    answer = await client.post("/generate", json={**MUSIC, **more})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])
