"""The address of a client. `X-Forwarded-For` counts only when a trusted proxy sent it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import Scope

from fairlane.api.middleware.request_headers import FORWARDED, RequestHeaders


class ClientAddress:
    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._proxies = [ipaddress.ip_network(each) for each in trusted_proxies]

    def of(self, scope: Scope, seen: RequestHeaders) -> str:
        """Returns the client's address. `X-Forwarded-For` is followed from its end, as long as the
        sender is a trusted proxy."""
        client = scope.get("client")
        address = client[0] if client else ""
        forwarded = seen.headers.get(FORWARDED, b"").decode("latin-1")
        for each in reversed([part.strip() for part in forwarded.split(",") if part.strip()]):
            if not self._is_ours(address):
                break
            address = each
        return str(address)

    def _is_ours(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)
