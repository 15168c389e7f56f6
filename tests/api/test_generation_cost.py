"""What the generation routes cost does not grow with the queue, measured without a clock."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest

from fairlane.index.index import EXACT_POSITIONS
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.service import Fairness, Service
from fairlane.model.worker import Worker
from tests.api.generation import MUSIC, TIERS, generated
from tests.api.server import gateway
from tests.world import World

SHORT_QUEUE, LONG_QUEUE = 500, 10_000
MAX_RATIO = 1.5
STEPS = 100
"""Steps of SQLite's virtual machine between two counts."""

OWN = "ada"


class Work:
    """Calls of Python functions in this thread, and steps of SQLite in any."""

    def __init__(self) -> None:
        self.calls = self.steps = 0

    def called(self, _frame: FrameType, event: str, _argument: Any) -> None:
        self.calls += event == "call"

    def stepped(self) -> int:
        self.steps += 1
        return 0


work = Work()


class CountedConnection(sqlite3.Connection):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.set_progress_handler(work.stepped, STEPS)


async def cost(client: httpx2.AsyncClient, world: World, method: str, path: str) -> tuple[int, int]:
    """(calls, steps) of one request, which looks at the front of the queue anew."""
    sent = MUSIC if method == "POST" else None
    world.clock.advance(1_000_000)
    work.calls = work.steps = 0
    sys.setprofile(work.called)
    try:
        answer = await client.request(method, path, json=sent)
    finally:
        sys.setprofile(None)
    assert answer.is_success, answer.text
    return work.calls, work.steps


async def costs(path: Path, waiting: int, fairness: Fairness) -> dict[str, tuple[int, int]]:
    catalog = Catalog(TIERS, [Service("generate", limit=1, fairness=fairness)])
    async with (
        World(catalog, path, CountedConnection) as world,
        gateway(world.engine) as served,
        served.client(headers={"Connection": "keep-alive"}) as client,
    ):
        worker = await world.engine.register(Worker("gpu"))
        for start in range(0, waiting, 500):
            await world.submit_all(
                [
                    NewJob("generate", MUSIC, f"u{n % 50}", "admin", ("music", "audio")[n % 2], 30)
                    for n in range(start, start + 500)
                ]
            )
        own = [await generated(client, user_id=OWN, priority="creator") for _ in range(3)]
        await world.claim_one(worker)
        routes = {
            "GET /generate/{id}": ("GET", f"/generate/{own[0]}"),
            "GET /queue-status": ("GET", f"/queue-status?user_id={OWN}"),
            "GET /queue-status of all": ("GET", "/queue-status"),
            "GET /api/queue": ("GET", "/api/queue"),
            "GET /status": ("GET", "/status"),
            "POST /generate": ("POST", "/generate"),
            "DELETE /generate/{id}": ("DELETE", f"/generate/{own[0]}"),
        }
        found = {}
        for name, (method, where) in routes.items():
            if method == "GET":
                await cost(client, world, method, where)  # caches of the process are filled
            found[name] = await cost(client, world, method, where)
        return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fairness", list(Fairness))
async def test_a_long_queue_costs_no_more_than_a_short_one(
    tmp_path: Path, fairness: Fairness
) -> None:
    assert SHORT_QUEUE > EXACT_POSITIONS
    short = await costs(tmp_path / "short.db", SHORT_QUEUE, fairness)
    long = await costs(tmp_path / "long.db", LONG_QUEUE, fairness)
    for route, (calls, steps) in long.items():
        assert calls <= MAX_RATIO * short[route][0] + 200, (route, calls, short[route])
        assert steps <= MAX_RATIO * short[route][1] + 20, (route, steps, short[route])
