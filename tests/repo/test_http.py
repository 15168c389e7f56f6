"""Every route is documented with who may use it, and no other."""

from __future__ import annotations

from fairlane.api.auth.roles import OPEN
from fairlane.api.routes import GROUPS
from tests.repo.tables import DOCS, table

PAGE = DOCS / "reference" / "http.md"
DESCRIPTION = {(f"GET {path}", "any") for path in ("/openapi.json", "/docs", "/docs/{file}")}


def test_every_route_is_documented_with_who_may_use_it() -> None:
    documented = {(row["route"], row["access"]) for row in table(PAGE, "Routes")}
    declared: set[tuple[str, str]] = {
        (f"{each.method} {each.path}", each.access) for group in GROUPS for each in group.declared
    }
    declared |= {(f"WS {path}", access) for group in GROUPS for path, access, _ in group.sockets}
    declared |= {(f"GET {path}", "open") for path in OPEN}
    assert documented == declared | DESCRIPTION


def test_every_route_says_what_it_does() -> None:
    assert all(row["what it does"] for row in table(PAGE, "Routes"))
