"""Addresses that results may be sent to, as far as they can be judged without asking anybody."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from fairlane.api.problems import Problem
from fairlane.config.settings import Callbacks

HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def check_callback(url: str, policy: Callbacks, *, development: bool) -> None:
    """Raises for an address that no result may go to. Who sends it looks again, at what the name
    means then."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise _refused("it cannot be read") from None
    host = (parts.hostname or "").rstrip(".")
    if development and host in HERE:
        return
    if parts.scheme != "https":
        raise _refused("it must begin with https://")
    _check_host(parts, host, policy)
    if port not in policy.ports:
        raise _refused(f"its port must be one of {', '.join(map(str, policy.ports))}")


def _check_host(parts: SplitResult, host: str, policy: Callbacks) -> None:
    if not host or "@" in parts.netloc:
        raise _refused("it must name a host, and no user")
    if host in policy.private:
        return
    if host == "localhost" or host.endswith((".localhost", ".internal", ".local")):
        raise _refused("its host is not public")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if host.replace(".", "").replace("x", "").isalnum() and host[0].isdigit():
            _check_odd_number(host)
        return
    if not address.is_global:
        raise _refused("its host is not public")


def _check_odd_number(host: str) -> None:
    """2130706433, 0x7f000001 and 0177.0.0.1 are addresses to some resolvers, and never names."""
    last = host.rpartition(".")[2]
    if last.isdigit() or last.startswith("0x"):
        raise _refused("its host is an address in disguise")


def _refused(why: str) -> Problem:
    return Problem(422, "url_not_allowed", f"callback_url: {why}", more={"field": "callback_url"})
