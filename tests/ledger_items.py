"""What an engine would write into its ledger, made by hand: to write it twice, late or forged."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from fairlane.clock import seconds
from fairlane.ids import token
from fairlane.ledger.messages import Common, Confirmation, Request, Settlement, Submission
from fairlane.model.attempt import Outcome
from fairlane.model.event import EventType, Fact, place
from fairlane.model.job import Error, Job, Json, fair_user
from fairlane.model.lease import Lease, Slot
from fairlane.model.state import Code, Move
from fairlane.model.step import Lane, Step
from fairlane.policy.quotas import Quota
from tests.core import core_of
from tests.world import World


def submission(
    world: World,
    name: str = "work",
    *,
    user: str | None = None,
    quota: Quota | None = None,
    idempotency: tuple[str, str, str] | None = None,
) -> Submission:
    """A job of one step, with an id of its own."""
    core = core_of(world.engine)
    now = core.now()
    tier = core.catalog.tiers[core.catalog.tiers.default]
    service = core.catalog.service(name)
    step = Step(name, service.executor, Lane(name).name, seconds(tier.timeout), 4)
    common = Common(
        tenant="default",
        key="local",
        name=name,
        plan=(step,),
        model="",
        duration=0,
        tier=tier.name,
        timeout=step.timeout,
        ready_at=now,
        give_up_at=None,
        created_at=now,
        tags=(),
        callback=None,
        trace=None,
        quota=quota or Quota(),
    )
    return Submission(
        id=core.ids.new(now),
        user=user,
        who=fair_user("default", user, "local"),
        input="null",
        common=common,
        idempotency=idempotency,
        keep_keys=seconds(86_400),
    )


def with_cells(parent: Submission, world: World, cells: int) -> Submission:
    """The same job as a fan-out of so many executions."""
    core = core_of(world.engine)
    return parent._replace(
        cells=tuple(
            parent._replace(
                id=core.ids.new(core.now()), parent=parent.id, cell={"n": str(n)}, idempotency=None
            )
            for n in range(cells)
        )
    )


def confirmation(
    world: World, job: Job, slots: Iterable[Slot] = (), *, region: str | None = None
) -> Confirmation:
    """A claim of this job, as the settings demand it, with these slots."""
    core = core_of(world.engine)
    return Confirmation(
        token=token(),
        job=job.id,
        rev=job.rev,
        lane=job.lane,
        tier=job.tier,
        user=core.entry(job).user,
        slots=tuple(slots),
        pools=frozenset(pool.name for pool in core.catalog.pools(job.current.service, region)),
        cap=0,
        worker="by hand",
        region=region,
        cost=1,
        lease=seconds(15),
        now=core.now(),
        epoch=core.stamp,
    )


def completion(lease: Lease, now: int, output: Json = None) -> Settlement:
    """The last step succeeded."""
    where = place(lease.service, lease.step, len(lease.plan))
    return Settlement(
        lease=lease,
        now=now,
        move=Move.COMPLETE,
        outcome=Outcome.COMPLETED,
        facts=(Fact(EventType.STEP_COMPLETE, now, where), Fact(EventType.JOB_COMPLETE, now, {})),
        output=orjson.dumps(output).decode(),
    )


def advance(lease: Lease, now: int, output: Json = None) -> Settlement:
    """This step succeeded, the next one waits."""
    following = lease.plan[lease.step + 1]
    waiting = place(following.service, lease.step + 1, len(lease.plan))
    return completion(lease, now, output)._replace(
        move=Move.ADVANCE,
        facts=(Fact(EventType.WAITING, now, waiting),),
        timeout=following.timeout,
        ready_at=now,
        lane=following.lane,
    )


def retry(lease: Lease, now: int, ready_at: int) -> Settlement:
    """The attempt failed, the job tries again at `ready_at`."""
    return Settlement(
        lease=lease,
        now=now,
        move=Move.RETRY,
        outcome=Outcome.FAILED,
        facts=(Fact(EventType.JOB_RETRY, now, place(lease.service, lease.step, len(lease.plan))),),
        attempt=lease.attempt,
        timeout=lease.at.timeout,
        ready_at=ready_at,
        lane=lease.at.lane,
    )


def failure(lease: Lease, now: int, code: Code = Code.RESOURCE_EXHAUSTED) -> Settlement:
    """The attempt failed, and the job with it."""
    return Settlement(
        lease=lease,
        now=now,
        move=Move.FAIL,
        outcome=Outcome.FAILED,
        facts=(Fact(EventType.JOB_FAILED, now, {"code": code}),),
        error=Error(code, "it did not work"),
        attempt=lease.attempt,
    )


def request(world: World, job: str) -> Request:
    """Somebody wants something of this job, under a name of its own."""
    return Request(job, None, token(), world.clock.now())


# --- credits of a ledger whose entries have no order yet ------------------------------------------
OLD_ACCOUNTS = [("user:default/ada", 10), ("user:default/bob", 1), ("house:mint", -11)]
OLD_ENTRIES = [
    (f"credit:{account}:{key}", name, amount if name == account else -amount, at)
    for account, key, amount, at in (
        ("user:default/ada", "a", 1, 100),
        ("user:default/ada", "b", 2, 100),
        ("user:default/ada", "c", 3, 101),
        ("user:default/ada", "d", 4, 500),
        ("user:default/bob", "e", 1, 100),
    )
    for name in (account, "house:mint")
]
AFTERWARDS = [("d", 500, 10), ("c", 102, 6), ("b", 101, 3), ("a", 100, 1)]
"""(operation key, time, balance) of ada's statement once such a ledger is migrated."""
