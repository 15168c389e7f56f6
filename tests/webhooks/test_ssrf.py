"""S12: where a delivery may go, and the ways around it that do not work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlane.config.settings import Callbacks, Settings
from fairlane.errors import UrlNotAllowed
from fairlane.model.catalog import Catalog
from fairlane.model.tier import Tier, Tiers
from fairlane.webhooks.ssrf import Resolver, SsrfGuard, is_loopback, is_public

pytestmark = pytest.mark.embedded  # no store is asked

PUBLIC = "93.184.215.14"


def to(*addresses: str) -> Resolver:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


async def unresolvable(host: str, port: int) -> Sequence[str]:
    raise OSError("no such name")


async def goes_to(egress: SsrfGuard, url: str) -> list[str]:
    return await egress.addresses(egress.check(url))


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/fairlane",
        "https://hooks.example.com:443/a?b=c",
        "https://HOOKS.example.com.",
        "https://xn--bcher-kva.example",
        f"https://{PUBLIC}/",
        "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/",
    ],
)
async def test_a_public_https_address_is_allowed(url: str) -> None:
    egress = SsrfGuard(resolve=to(PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"))
    assert await goes_to(egress, url)


BAD_FORMS = [
    "http://hooks.example.com/",
    "https://hooks.example.com:8443/",
    "https://hooks.example.com:80/",
    "https://user@hooks.example.com/",
    "https://user:pw@hooks.example.com/",
    "https://@hooks.example.com/",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "gopher://hooks.example.com/",
    "//hooks.example.com/",
    "hooks.example.com",
    "https://",
    "https:///path",
    "",
    "https://hooks.example.com:99999/",
    "https://hooks.example.com\\@127.0.0.1/",
    "https://hooks.example.com /",
    "https://hooks.example.com/\n",
    "https://hooks.example.com/ä",
    "https://" + "a" * 2100,
    "https://127.1/",
    "https://127.0.0.1/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://2130706433/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0/",
    "https://0.0.0.0/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[64:ff9b:1::a9fe:a9fe]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:7f00:1::]/",
    "https://[fd00::1]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[::7f00:1]/",
    "https://[2001:db8::1]/",
    "https://100.100.100.200/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://localhost/",
    "https://localhost./",
    "https://LOCALHOST/",
    "https://a.localhost/",
    "https://metadata/",
    "https://metadata.google.internal/",
    "https://metadata.google.internal./",
    "https://printer.local/",
    "https://１２７.0.0.1/",
    "https://127。0。0。1/",
    "https://hooks.example.com%00.local/",
    "https://-.example.com/",
    "https://1.0.0.127.in-addr.arpa/",
]


@pytest.mark.parametrize("url", BAD_FORMS)
async def test_an_address_that_says_itself_that_it_is_not_public_is_refused(url: str) -> None:
    """Without asking anybody: the resolver would call it public."""
    with pytest.raises(UrlNotAllowed):
        SsrfGuard(resolve=to(PUBLIC)).check(url)


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("::1",),
        ("169.254.169.254",),
        ("10.1.2.3",),
        (PUBLIC, "10.1.2.3"),
        ("10.1.2.3", PUBLIC),
        (PUBLIC, "::ffff:10.1.2.3"),
        ("64:ff9b::a9fe:a9fe",),
        ("fd00::1",),
        ("fe80::1%eth0",),
        ("2606:2800::1%eth0",),
        ("100.100.100.200",),
        ("not an address",),
    ],
)
async def test_a_name_is_refused_if_any_of_its_addresses_is_not_public(
    addresses: tuple[str, ...],
) -> None:
    with pytest.raises(UrlNotAllowed):
        await goes_to(SsrfGuard(resolve=to(*addresses)), "https://hooks.example.com/")


async def test_a_name_that_cannot_be_resolved_now_may_be_one_later() -> None:
    with pytest.raises(OSError, match="no such name"):
        await goes_to(SsrfGuard(resolve=unresolvable), "https://hooks.example.com/")
    with pytest.raises(OSError, match="no address"):
        await goes_to(SsrfGuard(resolve=to()), "https://hooks.example.com/")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080/", "http://localhost:9/", "http://[::1]:1/", "https://127.0.0.1/"],
)
async def test_development_mode_allows_this_machine(url: str) -> None:
    assert await goes_to(SsrfGuard(development=True, resolve=to("127.0.0.1", "::1")), url)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/",
        "http://10.0.0.1:80/",
        "https://hooks.example.com:8443/",
        "https://hooks.example.com/",
        "http://169.254.169.254/",
        "http://user@127.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
    ],
)
@pytest.mark.parametrize("address", [PUBLIC, "10.0.0.1", "169.254.169.254"])
async def test_development_mode_allows_nothing_else(url: str, address: str) -> None:
    with pytest.raises(UrlNotAllowed):
        await goes_to(SsrfGuard(development=True, resolve=to(address, "127.0.0.1")), url)


PRIVATE = Settings(
    Catalog(Tiers([Tier("only")])),
    callbacks=Callbacks(ports=(443, 8443), private=("Hooks.internal", "10.1.2.3")),
)


@pytest.mark.parametrize(
    "url",
    ["https://hooks.internal/", "https://HOOKS.internal.:8443/a?b", "https://10.1.2.3/"],
)
async def test_a_host_that_is_named_may_have_any_address(url: str) -> None:
    egress = replace(SsrfGuard.of(PRIVATE), resolve=to("10.1.2.3", "127.0.0.1"))
    assert await goes_to(egress, url)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.internal/",
        "https://hooks.internal:9000/",
        "https://user@hooks.internal/",
        "https://other.hooks.internal/",
        "https://10.1.2.4/",
        "https://hooks.example.com/",
    ],
)
async def test_a_host_that_is_named_opens_no_other(url: str) -> None:
    egress = replace(SsrfGuard.of(PRIVATE).with_keys(), resolve=to("10.1.2.3"))
    with pytest.raises(UrlNotAllowed):
        await goes_to(egress, url)


def test_what_is_public_is_neither_here_nor_nowhere() -> None:
    assert is_public(PUBLIC)
    assert not is_loopback(PUBLIC)
    assert not is_public("127.8.8.8")
    assert is_loopback("127.8.8.8")
    assert not is_loopback("localhost")
