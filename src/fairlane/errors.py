"""The error hierarchy: every error a caller can meet, and what to do about it.

FairlaneError
├── BadRequest            change the request
│   ├── UnknownName         a tier, service or pipeline that is not configured
│   ├── InvalidInput        a value that can never be accepted
│   │   └── TooDear           a price that is above what was offered
│   ├── UrlNotAllowed       a callback to where none may go
│   └── KeyReused           the idempotency key belongs to another request
├── Refused               a limit holds; says which, what is left, when to try again
├── Conflict              what is there is not what the request thinks it is
│   ├── StaleLease          the lease is gone; stop working on this job
│   └── WrongState          the move is not possible from the job's present state
├── NotFound              no such job, worker or user
├── NotYours              a worker or a lease that somebody else holds
├── Expired               the job existed and its record has been removed
├── JobFailed             a job whose result was waited for has none; says why
│   ├── JobDead             its attempts are used up
│   └── JobCancelled        it was cancelled
├── InsufficientCredits   pay first
├── NotReady              the index is being rebuilt; try again in a moment
├── TookTooLong           a look at many jobs was given up; ask for less
└── SetupError            fix the settings or the machine
    ├── StoreAway           PostgreSQL or Redis cannot be reached; try again when it is there
    ├── NotSetUp            the database has no schema, or nobody has brought settings yet
    ├── LedgerInUse         another process owns this ledger
    ├── LedgerTooNew        the ledger was written by a newer version
    └── LedgerUnusable      not a ledger, damaged, or its disk is full
"""

from __future__ import annotations

from collections.abc import Iterable

STORES = ("asyncpg", "redis", "sqlite3")
"""Packages whose errors mean that a store is away; they may not be installed."""


class FairlaneError(Exception):
    """Anything Fairlane refuses or cannot do. `code` is stable and machine-readable."""

    code = "error"


class BadRequest(FairlaneError):
    code = "bad_request"


class UnknownName(BadRequest):
    """Names what was asked for and everything that is known."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        message = f'unknown {kind} "{name}"; known: {", ".join(self.known) or "none"}'
        super().__init__(f"{message}; {hint}" if hint else message)


class InvalidInput(BadRequest):
    code = "invalid_input"


class TooDear(InvalidInput):
    """More than was offered for it."""

    def __init__(self, price: int, offered: int) -> None:
        self.price = price
        super().__init__(f"the skip costs {price}, more than the {offered} offered")


class UrlNotAllowed(BadRequest):
    code = "url_not_allowed"


class KeyReused(BadRequest):
    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("this idempotency key was used with another request; use a new key")


class Refused(FairlaneError):
    """A limit holds: how much it is, what is `left`, when it frees (µs)."""

    def __init__(
        self, code: str, message: str, *, limit: int, left: int = 0, frees_at: int | None = None
    ) -> None:
        self.code, self.limit, self.left, self.frees_at = code, limit, left, frees_at
        super().__init__(message)


class Conflict(FairlaneError):
    """What is there does not allow this; if it is a job, `state` says where that is."""

    code = "conflict"

    def __init__(self, message: str, *, state: str | None = None) -> None:
        self.state = state
        super().__init__(message)


class StaleLease(Conflict):
    code = "stale_lease"

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"the lease on job {job_id} is gone; the job is {state}", state=state)


class WrongState(Conflict):
    code = "wrong_state"

    def __init__(self, job_id: str, state: str, move: str) -> None:
        message = f"job {job_id} is {state}: {move} is not possible"
        if move == "resume" and state in ("failed", "dead"):
            message += (
                "; what failed would fail again with the attempts that are left; an administrator "
                f"can try it again with all attempts: POST /api/v1/jobs/{job_id}/replay"
            )
        elif move == "resume":
            message += "; only a job that failed can be resumed"
        super().__init__(message, state=state)


class NotFound(FairlaneError):
    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'no {kind} "{name}"')


class NotYours(FairlaneError):
    code = "not_yours"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not held by this worker")


class Expired(FairlaneError):
    code = "expired"

    def __init__(self, job_id: str, status: str | None) -> None:
        self.status = status
        super().__init__(f"job {job_id} ended as {status or 'unknown'}; its record was removed")


class JobFailed(FairlaneError):
    """A job that ended without a result. `reason` is the code of its own error, such as
    `INVALID_INPUT`, `message` what its worker or service said."""

    code = "job_failed"
    how = "failed"

    def __init__(self, job_id: str, reason: str = "", message: str = "") -> None:
        self.job_id, self.reason, self.message = job_id, reason, message
        said = ": ".join(each for each in (reason, message) if each)
        super().__init__(f"job {job_id} {self.how}" + (f": {said}" if said else ""))


class JobDead(JobFailed):
    code = "job_dead"
    how = "failed, and its attempts are used up"


class JobCancelled(JobFailed):
    code = "job_cancelled"
    how = "was cancelled"


class InsufficientCredits(FairlaneError):
    code = "insufficient_credits"

    def __init__(self, price: int, balance: int) -> None:
        self.price, self.balance = price, balance
        super().__init__(f"this costs {price}, the balance is {balance}")


class NotReady(FairlaneError):
    code = "not_ready"


class TookTooLong(FairlaneError):
    code = "took_too_long"


class SetupError(FairlaneError):
    code = "setup"


class StoreAway(SetupError):
    code = "store_away"


class NotSetUp(SetupError):
    code = "not_set_up"


class LedgerInUse(SetupError):
    code = "ledger_in_use"


class LedgerTooNew(SetupError):
    code = "ledger_too_new"


class LedgerUnusable(SetupError):
    code = "ledger_unusable"


def is_store_error(error: BaseException) -> bool:
    """Whether it means that a store is away, and the same may work in a moment."""
    package = type(error).__module__.partition(".")[0]
    return package in STORES or isinstance(error, OSError | TimeoutError)
