"""Keys and workers are listed in pages, like jobs."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from fairlane.model.key import Key, Role
from fairlane.model.worker import Worker
from tests.api.server import Gateway
from tests.core import core_of
from tests.world import World

pytestmark = pytest.mark.every_store


async def pages(client: AsyncClient, path: str, name: str, limit: int) -> list[list[Any]]:
    found = []
    cursor: dict[str, Any] = {}
    while True:
        answer = await client.get(path, params={"limit": limit, **cursor})
        assert answer.status_code == 200, answer.text
        found.append(answer.json()[name])
        if answer.json()["next"] is None:
            return found
        cursor = {"cursor": answer.json()["next"]}


async def test_keys_are_listed_in_pages_oldest_first(world: World, served: Gateway) -> None:
    names = ["b", "a", "e", "d", "c"]
    for at, name in enumerate(names):
        made = Key(name, "default", Role.CLIENT, "hash", created_at=1 + at // 2)
        await core_of(world.engine).ledger.keys.add(made, "local")
    async with served.client(await served.key(Role.ADMIN)) as client:
        found = await pages(client, "/admin/keys", "keys", 2)
        whole = (await client.get("/admin/keys")).json()
    assert [len(page) for page in found] == [2, 2, 2]
    assert [each["id"] for page in found for each in page][:5] == ["a", "b", "d", "e", "c"]
    assert whole == {"keys": [each for page in found for each in page], "next": None}


async def test_workers_are_listed_in_pages(world: World, served: Gateway) -> None:
    for n in (3, 1, 5, 2, 4):
        await world.engine.register(Worker(f"w{n}"))
    async with served.client() as client:
        found = await pages(client, "/api/v1/workers", "workers", 2)
        whole = (await client.get("/api/v1/workers")).json()
    names = [[each["worker_id"] for each in page] for page in found]
    assert names == [["w1", "w2"], ["w3", "w4"], ["w5"]]
    assert whole == {"workers": [each for page in found for each in page], "next": None}


@pytest.mark.parametrize("path", ["/admin/keys", "/api/v1/workers"])
async def test_a_page_is_bounded_and_a_cursor_belongs_to_its_list(
    served: Gateway, world: World, path: str
) -> None:
    for n in range(2):
        await world.engine.register(Worker(f"w{n}"))
    async with served.client() as client:
        for limit in (0, 201):
            assert (await client.get(path, params={"limit": limit})).status_code == 422
        foreign = (await client.get("/api/v1/workers", params={"limit": 1})).json()["next"]
        wrong = "x" if path == "/api/v1/workers" else foreign
        refused = await client.get(path, params={"cursor": wrong})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")
