"""Roles and permissions (role-based access control): the caller's identity, and the routes that
each role may use."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from fairlane.api.http.problem_details import ProblemDetails
from fairlane.engine.submit import Caller
from fairlane.model.job import Job
from fairlane.model.key import Key, Role

Access = Literal["public", "any", "read", "events", "client", "worker", "admin"]

ALLOWED: dict[Access, frozenset[Role]] = {
    "public": frozenset(Role),
    "any": frozenset(Role),
    "read": frozenset({Role.READ, Role.CLIENT, Role.ADMIN}),
    "events": frozenset({Role.READ, Role.CLIENT, Role.ADMIN}),
    "client": frozenset({Role.CLIENT, Role.ADMIN}),
    "worker": frozenset({Role.WORKER, Role.ADMIN}),
    "admin": frozenset({Role.ADMIN}),
}
"""The roles that each access level allows. `public` needs no key at all. A ticket is valid only for
`events`."""

OPEN = frozenset({"/livez", "/readyz"})
"""Paths that need no key: the liveness and readiness probes."""

SESSION_PATH, PLACE_PREFIX = "/session", "/api/v1/place/"


def is_public(path: str) -> bool:
    """Whether a path may be used without a key: signing in, and the place of a job by a signed
    link."""
    return path == SESSION_PATH or path.startswith(PLACE_PREFIX)


class Identity(NamedTuple):
    """The identity of a checked credential. `job` is set for a ticket: the only job it may read."""

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
        """Returns whether the key may read and change only the jobs it submitted itself."""
        return self.role is Role.CLIENT and not self.act_as

    def owns(self, job: Job) -> bool:
        return job.tenant == self.tenant and (not self.acts_alone or job.key == self.key)


DEVELOPER = Identity("local", "default", Role.ADMIN, act_as=True, set_priority=True)
"""The identity of every caller in development mode: loopback only, and no key was ever created."""


def identity_of(key: Key, job: str | None = None) -> Identity:
    return Identity(key.id, key.tenant, key.role, key.act_as, key.set_priority, job)


def permit(scope: Any, access: Access) -> None:
    """Raises 403 unless the identity's role is allowed. Denies by default."""
    if access == "public" and is_public(scope["path"]):
        return
    identity = scope.get("identity")
    if not isinstance(identity, Identity) or identity.role not in ALLOWED[access]:
        raise ProblemDetails(403, "forbidden", "this key's role may not use this route")
    if identity.job is not None and access != "events":
        raise ProblemDetails(403, "forbidden", "a ticket opens only the events of its job")
