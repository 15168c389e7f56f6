"""S12: a delivery goes to the address that was checked and believes only the name's certificate."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlane.webhooks import SsrfGuard, WebhookSender
from tests.webhooks.receiver import Receiver
from tests.webhooks.test_delivery import Scene, scene

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl"),
]

NAME = "hooks.example.com"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of hooks.example.com, signed by itself; its key beside it."""
    made = tmp_path_factory.mktemp("tls") / "certificate.pem"
    wanted = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        f" -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}"
    )
    files = ("-keyout", made.with_suffix(".key"), "-out", made)
    subprocess.run(["openssl", *wanted.split(), *files], check=True, capture_output=True)
    return made


class Tls:
    """A receiver with that certificate; what it was asked for by name."""

    def __init__(self, at: Scene, receiver: Receiver) -> None:
        self.at, self.receiver = at, receiver
        self.named: list[str | None] = []
        self.resolved: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Once for each delivery: a second answer is never asked for."""
        self.resolved.append(host)
        return ["127.0.0.1"]

    async def told(self, host: str) -> str | None:
        """What became of one delivery to this name."""
        egress = SsrfGuard(
            frozenset({self.receiver.port}), private=frozenset({host}), resolve=self.resolve
        )
        self.at.sender = WebhookSender(self.at.world.engine, egress, seed=1)
        url = f"https://{host}:{self.receiver.port}/hook"
        await self.at.end(await self.at.world.submit(callback=url))
        assert await self.at.send() == 1
        return (await self.at.outcomes())[-1]


@asynccontextmanager
async def with_tls(path: Path, certificate: Path) -> AsyncIterator[Tls]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    async with scene(path) as at, Receiver().serving(context) as receiver:
        tls = Tls(at, receiver)

        def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
            tls.named.append(name)

        context.sni_callback = note
        yield tls


async def test_the_connection_goes_to_the_address_that_was_checked(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved once, and still is what the receiver proves to be and is called by."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with with_tls(tmp_path, certificate) as tls:
        assert await tls.told(NAME) == "delivered"
        (heard,) = tls.receiver.heard
        assert heard.headers["Host"] == f"{NAME}:{tls.receiver.port}"
        assert (tls.named, tls.resolved) == ([NAME], [NAME])


async def test_nothing_is_told_to_who_cannot_prove_the_name(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_tls(tmp_path, certificate) as tls:
        assert await tls.told(NAME) is None, "nobody trusts this certificate"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await tls.told("other.example.com") is None, "it is another name's"
        assert not tls.receiver.heard
