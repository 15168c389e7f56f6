"""S20: signatures that a receiver can verify."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from fairlane.webhooks import rotate_secret, secret_of
from fairlane.webhooks.signature import new_secret, secrets_of, signed
from tests.world import World, catalog

KNOWN = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""From the specification's own example."""


def test_the_example_of_the_specification_is_signed_as_it_says() -> None:
    body = b'{"test": 2432232314}'
    headers = signed("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, [KNOWN])
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "other",
    [("msg_2", 1, b"{}"), ("msg_1", 2, b"{}"), ("msg_1", 1, b"{ }")],
)
def test_whatever_is_changed_the_signature_is_another(other: tuple[str, int, bytes]) -> None:
    assert signed("msg_1", 1, b"{}", [KNOWN]) != signed(*other, [KNOWN])
    ours, theirs = signed("msg_1", 1, b"{}", [KNOWN]), signed(*other, [KNOWN])
    assert ours["webhook-signature"] != theirs["webhook-signature"]


def test_secrets_are_long_and_never_the_same() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    for secret in secrets:
        assert secret.startswith("whsec_")
        assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"))) <= 64


async def test_a_tenant_has_one_secret_of_its_own_through_restarts(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "db") as world:
        ours = await secret_of(world.engine, "ours")
        assert await secret_of(world.engine, "theirs") != ours
        await world.restart()
        assert await secret_of(world.engine, "ours") == ours


async def test_during_a_rotation_both_secrets_sign(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "db") as world:
        old = await secret_of(world.engine, "ours")
        new = await rotate_secret(world.engine, "ours", overlap=3600)
        assert await secrets_of(world.engine, "ours") == [new, old]
        newest = await rotate_secret(world.engine, "ours", overlap=3600)
        assert await secrets_of(world.engine, "ours") == [newest, new, old]
        await world.pass_time(3601)
        assert await secrets_of(world.engine, "ours") == [newest]
        headers = signed("msg_1", 1, b"{}", [new, old])["webhook-signature"].split(" ")
        assert [each.partition(",")[0] for each in headers] == ["v1", "v1"]
