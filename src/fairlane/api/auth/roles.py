"""Roles and permissions: who calls, and which routes each role may use."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from fairlane.api.http.problem_details import ProblemDetails
from fairlane.engine.submit import Caller
from fairlane.model.job import Job
from fairlane.model.key import Key, Role

Access = Literal["any", "read", "events", "client", "worker", "admin"]

ALLOWED: dict[Access, frozenset[Role]] = {
    "any": frozenset(Role),
    "read": frozenset({Role.READ, Role.CLIENT, Role.ADMIN}),
    "events": frozenset({Role.READ, Role.CLIENT, Role.ADMIN}),
    "client": frozenset({Role.CLIENT, Role.ADMIN}),
    "worker": frozenset({Role.WORKER, Role.ADMIN}),
    "admin": frozenset({Role.ADMIN}),
}
"""Who passes where. A ticket passes only where the events of its job are."""

OPEN = frozenset({"/livez", "/readyz"})
"""Paths that need no key; they say only whether it lives."""


class Identity(NamedTuple):
    """A credential that was checked. `job` is the only one a ticket may look at."""

    key: str
    tenant: str
    role: Role
    act_as: bool
    set_priority: bool
    job: str | None = None

    @property
    def caller(self) -> Caller:
        return Caller(self.tenant, self.key)

    @property
    def acts_alone(self) -> bool:
        """Whether it sees and moves no jobs but those that were submitted with this very key."""
        return self.role is Role.CLIENT and not self.act_as

    def owns(self, job: Job) -> bool:
        return job.tenant == self.tenant and (not self.acts_alone or job.key == self.key)


DEVELOPER = Identity("local", "default", Role.ADMIN, act_as=True, set_priority=True)
"""Everybody, while it listens only to this machine and no key was ever made."""


def identity_of(key: Key, job: str | None = None) -> Identity:
    return Identity(key.id, key.tenant, key.role, key.act_as, key.set_priority, job)


def permit(scope: Any, access: Access) -> None:
    """Deny by default: without an identity, or with a role that is not named, nobody passes."""
    identity = scope.get("identity")
    if not isinstance(identity, Identity) or identity.role not in ALLOWED[access]:
        raise ProblemDetails(403, "forbidden", "this key's role may not use this route")
    if identity.job is not None and access != "events":
        raise ProblemDetails(403, "forbidden", "a ticket opens only the events of its job")
