"""S20: whoever receives webhooks can learn what to verify them with, and nobody else can."""

from __future__ import annotations

import logging

import pytest

from fairlane.model.key import Role
from fairlane.webhooks import secret_of
from tests.api.server import TENANT, Gateway
from tests.world import World

pytestmark = pytest.mark.every_store
PATH = "/admin/webhooks/secret"


async def test_the_secrets_of_a_tenant_are_shown_to_its_administrator(
    world: World, served: Gateway
) -> None:
    async with (
        served.client(await served.key(Role.ADMIN)) as ours,
        served.client(await served.key(Role.ADMIN, "other")) as theirs,
        served.client(await served.key()) as client,
    ):
        answer = await ours.get(PATH)
        (secret,) = answer.json()["secrets"]
        assert secret == await secret_of(world.engine, TENANT)
        assert answer.headers["cache-control"] == "no-store"
        assert (await theirs.get(PATH)).json()["secrets"] != [secret]
        assert (await client.get(PATH)).status_code == 403


async def test_a_rotated_secret_comes_first_and_the_old_one_signs_for_a_day(
    world: World, served: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with served.client(await served.key(Role.ADMIN)) as client:
        new, old = (await client.post(f"{PATH}/rotate")).json()["secrets"]
        assert new == await secret_of(world.engine, TENANT) != old
        assert (await client.get(PATH)).json()["secrets"] == [new, old]
        await world.pass_time(86_401)
        assert (await client.get(PATH)).json()["secrets"] == [new]
        audit = await client.get("/admin/audit")
        rotated = [each for each in audit.json()["changes"] if "secret" in each["action"]]
        assert [(each["target"], each["actor"][:5]) for each in rotated] == [(TENANT, "acme/")]
        assert "whsec_" not in audit.text
    assert "whsec_" not in caplog.text
