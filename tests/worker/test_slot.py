"""Slots that callers hold themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import fairlane
from fairlane import ApiError
from fairlane.model.key import Role
from fairlane.model.service import Executor, Service
from fairlane.model.state import State
from tests.worker.scene import scene
from tests.world import catalog

pytestmark = pytest.mark.timeout(60)

SETTINGS = catalog(
    Service("image_gen", executor=Executor.CALLER, limit=1), Service("pulled", limit=1)
)


async def test_a_slot_is_held_by_one_caller_after_the_other(tmp_path: Path) -> None:
    """I7: as many as the limit says, in the order of service."""
    inside = most = 0
    async with scene(tmp_path, SETTINGS) as at:

        async def call(user: str) -> str:
            nonlocal inside, most
            async with fairlane.slot("image_gen", user=user, url=at.served.url) as held:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
                return held.slot_id

        jobs = await asyncio.gather(*(call(f"u{n}") for n in range(8)))
        assert most == 1
        assert {(await at.world.job(job)).state for job in jobs} == {State.COMPLETED}
        await at.world.healthy()


async def test_a_slot_works_without_a_loop(tmp_path: Path) -> None:
    async with scene(tmp_path, SETTINGS) as at:

        def program() -> bool:
            with fairlane.slot("image_gen", url=at.served.url) as held:
                return held.lost

        assert await asyncio.to_thread(program) is False


async def test_a_caller_that_vanished_loses_its_slot_with_the_lease(tmp_path: Path) -> None:
    async with scene(tmp_path, SETTINGS) as at, at.served.client() as client:
        taken = (await client.post("/api/v1/slots", json={"service": "image_gen"})).json()
        assert taken["lease"]
        wish = {"service": "image_gen", "wait_seconds": 0}
        second = (await client.post("/api/v1/slots", json=wish)).json()
        assert (second["status"], second["lease"], second["position"]) == ("queued", None, 1)
        where, body = f"/api/v1/slots/{taken['slot_id']}", {"lease": taken["lease"]}
        await at.world.pass_time(14)
        assert (await client.post(f"{where}/renew", json=body)).status_code == 200
        await at.world.pass_time(16)
        assert (await client.post(f"{where}/renew", json=body)).status_code == 409
        assert (await client.post(f"{where}/release", json=body)).status_code == 409
        wish = {"service": "image_gen", "slot_id": second["slot_id"]}
        held = (await client.post("/api/v1/slots", json=wish)).json()
        assert held["lease"]


async def test_only_services_of_callers_have_slots_and_only_for_their_own(tmp_path: Path) -> None:
    async with scene(tmp_path, SETTINGS) as at:
        with pytest.raises(ApiError, match="executor"):
            async with fairlane.slot("pulled", url=at.served.url):
                pass
        mine, theirs = await at.served.key(tenant="a"), await at.served.key(tenant="b")
        reader = await at.served.key(Role.READ, tenant="a")
        async with (
            at.served.client(mine) as own,
            at.served.client(theirs) as other,
            at.served.client(reader) as read,
        ):
            taken = (await own.post("/api/v1/slots", json={"service": "image_gen"})).json()
            where, body = f"/api/v1/slots/{taken['slot_id']}", {"lease": taken["lease"]}
            wish = {"service": "image_gen", "slot_id": taken["slot_id"]}
            assert (await other.post("/api/v1/slots", json=wish)).status_code == 404
            assert (await other.post(f"{where}/release", json=body)).status_code == 404
            assert (await read.post(f"{where}/release", json=body)).status_code == 403
            guess = {"lease": "guessed"}
            assert (await own.post(f"{where}/release", json=guess)).status_code == 409
            assert (await own.post(f"{where}/release", json=body)).status_code == 200
