"""Authorization by ownership: tenant isolation, and jobs of one key. A job of another owner is
answered with 404, like a job that does not exist."""

from __future__ import annotations

import re
from typing import Any

from starlette.types import Scope

from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext
from fairlane.api.http.problem_details import no_job

UUID = re.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
NAMED = ("job_id", "execution_id")
"""Path parameters that hold a job's id."""


def checked(job_id: str) -> str:
    """Returns the job's id. Raises 404 if it is not a UUID."""
    if not UUID.match(job_id):
        raise no_job(job_id)
    return job_id


async def check_path(scope: Scope) -> None:
    """Raises if the path names a job of another key, for a key that sees only its own jobs. The
    tenant is checked by each operation."""
    identity: Any = scope.get("identity")
    if isinstance(identity, Identity) and identity.acts_alone:
        for name in NAMED:
            if name in scope["path_params"]:
                await check_own(scope["app_context"], identity, scope["path_params"][name])


async def check_own(app_context: AppContext, identity: Identity, job_id: str) -> None:
    """Raises if the job does not exist, or the caller does not own it."""
    key = identity.key if identity.acts_alone else None
    await app_context.engine.get(checked(job_id), identity.tenant, key)
