"""Submit: from a request to a durable place in line."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from fairlane.engine.core import Core
from fairlane.errors import FairlaneError, InvalidInput, UnknownName
from fairlane.ledger.ledger import Accepted, Submission, SubmitOutcome
from fairlane.model.catalog import checked_name
from fairlane.model.entry import Entry
from fairlane.model.job import Band, Json, NewJob, fair_user
from fairlane.model.service import Service
from fairlane.model.step import Lane, Plan, Step
from fairlane.model.tier import Tier
from fairlane.policy.admission import Quota, admit_duration

SECOND = 1_000_000


class Caller(NamedTuple):
    """Whose credential submits."""

    tenant: str = "default"
    key: str = "local"


async def submit(core: Core, caller: Caller, requests: Sequence[NewJob]) -> list[SubmitOutcome]:
    """Each request's own outcome, in order. Accepted means durable."""
    now = core.now()
    outcomes: list[SubmitOutcome | None] = []
    prepared: list[Submission] = []
    for request in requests:
        try:
            prepared.append(await _prepare(core, caller, request, now))
            outcomes.append(None)
        except FairlaneError as error:
            outcomes.append(error)
    if prepared:
        written = await core.ledger.submit(prepared)
        await core.index.put(_entries(core, prepared, written.outcomes), now)
        core.ledger.published(written.receipts)
        answers = iter(written.outcomes)
        return [next(answers) if outcome is None else outcome for outcome in outcomes]
    return [outcome for outcome in outcomes if outcome is not None]


def _entries(core: Core, prepared: list[Submission], outcomes: list[SubmitOutcome]) -> list[Entry]:
    tiers = core.catalog.tiers
    entries = []
    for submission, outcome in zip(prepared, outcomes, strict=True):
        if isinstance(outcome, Accepted):
            for each in submission.cells or (submission,):
                rank = tiers.rank(each.tier)
                entries.append(
                    Entry(
                        each.id,
                        1,
                        each.plan[0].lane,
                        Band.TIER,
                        rank,
                        each.ready_at,
                        each.ready_at,
                        fair_user(each.user, each.key),
                        each.model,
                        core.costs.get(each.plan[0].service, each.model),
                        tiers.all[rank].max_running_per_user,
                        rank,
                    )
                )
    return entries


# --- preparing -------------------------------------------------------------------------------------
async def _prepare(core: Core, caller: Caller, request: NewJob, now: int) -> Submission:
    tier = core.catalog.tiers[await _tier(core, caller, request)]
    refusal = admit_duration(tier, request.duration)
    if refusal is not None:
        raise refusal
    plan = _plan(core, request, tier)
    for step in plan:
        if not await core.index.has_lane(step.lane):
            raise InvalidInput(f"service {step.service} has too many combinations of needs")
    submission = Submission(
        id=core.ids.new(now),
        tenant=caller.tenant,
        key=caller.key,
        user=request.user,
        name=request.name,
        plan=plan,
        input=_text(request.input, core.catalog.limits.input_bytes),
        model=request.model,
        duration=request.duration,
        tier=tier.name,
        timeout=plan[0].timeout,
        ready_at=max(now, request.run_at or now),
        give_up_at=max(now, request.run_at or now) + plan[0].max_wait if plan[0].max_wait else None,
        created_at=now,
        tags=request.tags,
        callback=request.callback,
        trace=request.trace,
        quota=Quota(tier.pending, tier.per_hour, core.catalog.limits.waiting),
        idempotency=_idempotency(caller, request),
        keep_keys=round(core.catalog.limits.keep_keys * SECOND),
    )
    if request.matrix is not None:
        cells = _cells(core, request, submission, tier, now)
        return submission._replace(cells=cells)
    return submission


async def _tier(core: Core, caller: Caller, request: NewJob) -> str:
    """The request's own, else the one stored for the user, else the default."""
    if request.tier is not None:
        return request.tier
    if request.user is None:
        return core.catalog.tiers.default
    who = (caller.tenant, request.user)
    known = core.tiers_of_users.get(who)
    if known is None:
        stored = await core.ledger.tier_of(*who)
        known = stored if stored in core.catalog.tiers.names else core.catalog.tiers.default
        if len(core.tiers_of_users) >= 100_000:
            core.tiers_of_users.clear()
        core.tiers_of_users[who] = known
    return known


def _plan(core: Core, request: NewJob, tier: Tier) -> Plan:
    services = core.catalog.steps(request.name)
    for region in request.regions:
        if not any(region in service.regions for service in services):
            raise UnknownName("region", region, {r for s in services for r in s.regions})
    if request.model and ("|" in request.model or len(request.model) > 100):
        raise InvalidInput('a model name has at most 100 characters and no "|"')
    return tuple([_step(service, request, tier) for service in services])


def _step(service: Service, request: NewJob, tier: Tier) -> Step:
    regions = tuple(sorted(region for region in request.regions if region in service.regions))
    needs = service.capabilities.union(
        checked_name("capability", each) for each in request.capabilities
    )
    return Step(
        service=service.name,
        executor=service.executor,
        lane=Lane(service.name, regions, tuple(sorted(needs))).name,
        timeout=request.timeout or round((service.timeout or tier.timeout) * SECOND),
        max_attempts=service.max_attempts or 1 + tier.max_retries,
        max_wait=request.max_wait or round(service.max_wait * SECOND),
    )


def _cells(
    core: Core, request: NewJob, parent: Submission, tier: Tier, now: int
) -> tuple[Submission, ...]:
    """One execution for every combination; `model` and `region` are understood, the rest is input."""
    axes = request.matrix or {}
    combinations = list(itertools.product(*axes.values())) if axes else []
    most = core.catalog.limits.cells
    if not combinations or len(combinations) > most:
        raise InvalidInput(f"a matrix has 1 to {most} combinations, this one {len(combinations)}")
    if not isinstance(request.input, dict | None):
        raise InvalidInput("a job with a matrix takes an object as input")
    cells = []
    for values in combinations:
        cell = dict(zip(axes, values, strict=True))
        region = cell.get("region")
        own = request._replace(
            model=cell.get("model", request.model),
            regions=(region,) if region is not None else request.regions,
        )
        cells.append(
            parent._replace(
                id=core.ids.new(now),
                plan=_plan(core, own, tier),
                input=_text({**(request.input or {}), **cell}, core.catalog.limits.input_bytes),
                model=own.model,
                parent=parent.id,
                cell=cell,
                idempotency=None,
                callback=None,
            )
        )
    return tuple(cells)


def _text(value: Json, most: int) -> str:
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the input is not JSON: {error}") from None
    if len(text) > most:
        raise InvalidInput(f"the input has {len(text)} bytes, at most {most} are allowed")
    if b"\\u0000" in text:
        raise InvalidInput("the input contains U+0000")
    return text.decode()


def _idempotency(caller: Caller, request: NewJob) -> tuple[str, str, str] | None:
    """(scope, key, hash of the request): compared as canonical JSON."""
    if request.idempotency_key is None:
        return None
    body = orjson.dumps(request._asdict(), option=orjson.OPT_SORT_KEYS)
    scope = f"{caller.tenant}/{caller.key}"
    return scope, request.idempotency_key, hashlib.sha256(body).hexdigest()
