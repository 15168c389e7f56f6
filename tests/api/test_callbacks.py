"""S12: addresses that a job may name, as the door sees them."""

from __future__ import annotations

import pytest

from fairlane.config.settings import Callbacks
from tests.api.server import Gateway, gateway
from tests.world import World

HERE = {"service": "work", "callback_url": "http://127.0.0.1:9000/hook"}


@pytest.mark.every_store
async def test_this_machine_may_be_called_back_only_while_nobody_needs_a_key(
    served: Gateway,
) -> None:
    """Behind a proxy it listens to this machine, too, and then whoever submits is elsewhere."""
    async with served.client() as developer:
        assert (await developer.post("/api/v1/jobs", json=HERE)).status_code == 202
    async with served.client(await served.key()) as tenant:
        answer = await tenant.post("/api/v1/jobs", json=HERE)
        assert (answer.status_code, answer.json()["code"]) == (422, "url_not_allowed")
        assert answer.json()["field"] == "callback_url"
        batch = await tenant.post("/api/v1/jobs:batch", json={"jobs": [HERE, {"service": "work"}]})
        refused, accepted = batch.json()["results"]
        assert (refused["error"]["code"], accepted["status"]) == ("url_not_allowed", 202)


async def test_the_door_and_the_sender_know_the_same_private_hosts(world: World) -> None:
    callbacks = Callbacks(private=("hooks.internal",))
    async with gateway(world.engine, callbacks=callbacks) as served, served.client() as client:
        for host, status in (("hooks.internal", 202), ("other.internal", 422)):
            job = {"service": "work", "callback_url": f"https://{host}/hook"}
            assert (await client.post("/api/v1/jobs", json=job)).status_code == status
