"""The error hierarchy: every error that a caller can get, and what to do about it.

FairlaneError
├── BadRequest            change the request
│   ├── UnknownName         a tier, service or pipeline that is not configured
│   ├── InvalidInput        a value that can never be accepted
│   │   └── TooDear           the price is above `max_price`
│   ├── UrlNotAllowed       a callback URL that is not allowed
│   └── KeyReused           the idempotency key belongs to another request
├── Refused               a limit was reached; says which, what is left, when to try again
├── Conflict              the stored state does not allow the request
│   ├── StaleLease          the lease is gone; stop working on this job
│   └── WrongState          the transition is not possible from the job's present state
├── NotFound              no such job, worker or user
├── NotYours              a worker of another key, or a lease of another worker
├── Expired               the job existed and its record was deleted
├── JobFailed             the job ended without a result; says why
│   ├── JobDead             its attempts are used up
│   └── JobCancelled        it was cancelled
├── JobTimeout            the job has not ended in time; it is kept
├── InsufficientCredits   the balance is below the price; add credits
├── NotReady              the index is being rebuilt; try again in a moment
├── TookTooLong           a query over many jobs was stopped; ask for less
└── SetupError            fix the settings or the machine
    ├── StoreAway           PostgreSQL or Redis cannot be reached; try again when it runs
    ├── NotSetUp            the database has no schema, or no process has stored settings yet
    ├── LedgerInUse         another process owns this ledger
    ├── LedgerTooNew        the ledger was written by a newer version
    └── LedgerUnusable      not a ledger, damaged, or its disk is full
"""

from __future__ import annotations

from collections.abc import Iterable

STORES = ("asyncpg", "redis", "sqlite3")
"""Packages whose errors mean that a store is unavailable. They may not be installed."""


class FairlaneError(Exception):
    """The base of all errors of Fairlane. `code` is stable and machine-readable."""

    code = "error"


class BadRequest(FairlaneError):
    code = "bad_request"


class UnknownName(BadRequest):
    """The message names the unknown name and all known ones."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        message = f'unknown {kind} "{name}"; known: {", ".join(self.known) or "none"}'
        super().__init__(f"{message}; {hint}" if hint else message)


class InvalidInput(BadRequest):
    code = "invalid_input"


class TooDear(InvalidInput):
    """The skip costs more than the caller's `max_price`."""

    def __init__(self, price: int, offered: int) -> None:
        self.price = price
        super().__init__(
            f"the skip costs {price} credits, more than the {offered} offered; "
            "raise max_price, or wait"
        )


class UrlNotAllowed(BadRequest):
    code = "url_not_allowed"


class KeyReused(BadRequest):
    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("this idempotency key was used with another request; use a new key")


class Refused(FairlaneError):
    """A limit was reached: the `setting` and its value, what is `left`, and when it frees (µs).
    `tier` is the tier of the refused job."""

    tier: str | None = None

    def __init__(
        self,
        code: str,
        message: str,
        *,
        limit: int,
        left: int = 0,
        frees_at: int | None = None,
        setting: str | None = None,
    ) -> None:
        self.code, self.setting, self.limit = code, setting, limit
        self.left, self.frees_at = left, frees_at
        super().__init__(message)


class Conflict(FairlaneError):
    """The stored state does not allow the request. For a job, `state` is its state."""

    code = "conflict"

    def __init__(self, message: str, *, state: str | None = None) -> None:
        self.state = state
        super().__init__(message)


class StaleLease(Conflict):
    code = "stale_lease"

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(
            f"the lease on job {job_id} is gone, the job is {state}; stop working on it",
            state=state,
        )


class WrongState(Conflict):
    code = "wrong_state"

    def __init__(self, job_id: str, state: str, move: str) -> None:
        message = f"job {job_id} is {state}: {move} is not possible"
        if move == "resume" and state in ("failed", "dead"):
            message += (
                ", because this failure is not resumable; an administrator can run the job again "
                f"with all attempts: POST /api/v1/jobs/{job_id}/replay"
            )
        elif move == "resume":
            message += "; only a failed job can be resumed"
        super().__init__(message, state=state)


class NotFound(FairlaneError):
    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'no {kind} "{name}"')


class NotYours(FairlaneError):
    code = "not_yours"

    def __init__(self, name: str) -> None:
        super().__init__(f"this worker does not hold {name}; use the id and lease it was given")


class Expired(FairlaneError):
    code = "expired"

    def __init__(self, job_id: str, status: str | None) -> None:
        self.status = status
        super().__init__(
            f"job {job_id} ended as {status or 'unknown'} and its record was deleted; "
            "to keep records longer, raise keep_finished or keep_dead"
        )


class JobFailed(FairlaneError):
    """The job ended without a result. `reason` is the code of the job's error, such as
    `INVALID_INPUT`; `message` comes from its worker or service."""

    code = "job_failed"
    how = "failed"

    def __init__(self, job_id: str, reason: str = "", message: str = "") -> None:
        self.job_id, self.reason, self.message = job_id, reason, message
        said = ": ".join(each for each in (reason, message) if each)
        super().__init__(f"job {job_id} {self.how}" + (f": {said}" if said else ""))


class JobDead(JobFailed):
    code = "job_dead"
    how = "is a dead letter: its attempts are used up"


class JobCancelled(JobFailed):
    code = "job_cancelled"
    how = "was cancelled"


class JobTimeout(FairlaneError, TimeoutError):
    """The job had not ended when the wait for it was over. It is kept: wait for it again, or cancel
    it."""

    code = "inference_timeout"

    def __init__(self, job_id: str, message: str) -> None:
        self.job_id = job_id
        super().__init__(message)


class InsufficientCredits(FairlaneError):
    code = "insufficient_credits"

    def __init__(self, price: int, balance: int) -> None:
        self.price, self.balance = price, balance
        super().__init__(
            f"this costs {price} credits and the balance is {balance}; add credits first"
        )


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
    """Whether the error means that a store is unavailable, so that a retry may succeed."""
    package = type(error).__module__.partition(".")[0]
    return package in STORES or isinstance(error, OSError | TimeoutError)
