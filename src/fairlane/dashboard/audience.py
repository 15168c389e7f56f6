"""Audiences: who may see which users and jobs in a frame. All viewers of an audience get the same
bytes."""

from __future__ import annotations

from typing import NamedTuple


class Audience(NamedTuple):
    """Administrators (no tenant) see everything. A tenant sees its own users and jobs; with a key,
    only the jobs of that API key."""

    tenant: str | None = None
    key: str | None = None

    @property
    def is_admin(self) -> bool:
        return self.tenant is None

    def owns(self, fair_user: str) -> bool:
        """Whether the audience may see jobs of this user, named as `fair_user` names it."""
        if self.tenant is None:
            return True
        if self.key is not None:
            return fair_user == f"{self.tenant}:k:{self.key}"
        return fair_user.startswith(f"{self.tenant}:")


ADMINISTRATORS = Audience()


def user_name(fair_user: str) -> str:
    """The user's name as it is shown. Jobs that name no user are shown under their API key."""
    _, kind, name = fair_user.split(":", 2)
    return name if kind == "u" else f"key {name}"
