"""Submit (enqueue): checks a request, writes the job durably to the ledger, then tells the
index."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from fairlane.engine import job_log
from fairlane.engine.core import INDEX_BATCH, Core
from fairlane.engine.fanout_limits import check_matrix
from fairlane.engine.pending_places import place_frees_at
from fairlane.engine.queue_limits import QueueLimits, drained_at, jobs_joined
from fairlane.engine.submit_terms import MAX_MICROSECONDS, Terms
from fairlane.engine.task_types import task_types
from fairlane.engine.users_per_key import LOCAL_KEY, refuse_new_users
from fairlane.errors import FairlaneError, InvalidInput, Refused
from fairlane.index.index import Stats
from fairlane.json_text import json_text
from fairlane.ledger.messages import (
    Common,
    Owner,
    Submission,
    SubmissionAccepted,
    SubmitOutcome,
    Unwritten,
)
from fairlane.model.catalog import checked_name
from fairlane.model.construct import maker
from fairlane.model.fanout import OnCellFailure
from fairlane.model.job import Band, NewJob, fair_user
from fairlane.model.queue_entry import Entry, WaitingStep
from fairlane.model.step import service_of
from fairlane.policy.quotas import admit_duration
from fairlane.units import SECOND

MAX_KNOWN_USERS = 100_000
"""Users whose tier is cached."""

MAX_ESTIMATED_USERS = 20
"""Users of one call for whom the end of a pending job is estimated. Each costs a read."""

new_submission, entry = maker(Submission), maker(Entry)
BEFORE_USER = Entry._fields.index("user")
ALIKE = (
    *("name", "model", "duration", "regions", "capabilities", "run_at", "timeout", "max_wait"),
    *("callback", "tags", "trace", "max_retries", "backoff", "on_cell_failure"),
)
alike = itemgetter(*map(NewJob._fields.index, ALIKE))
"""The fields that, with the tier, decide the terms of a job. Requests that agree in them share one
`Common`."""

NEWER_FIELDS = {"max_retries": None, "backoff": (), "on_cell_failure": OnCellFailure.CONTINUE}
"""Fields that older stored hashes of requests lack, with the value at which they are left out."""

Kind = tuple[str, tuple[object, ...]]


class Granted(NamedTuple):
    """The result that requests with equal terms share."""

    terms: Terms
    common: Common
    refusal: FairlaneError | None


class Caller(NamedTuple):
    """The tenant and the API key that submit."""

    tenant: str = "default"
    key: str = LOCAL_KEY


async def submit(core: Core, caller: Caller, requests: Sequence[NewJob]) -> list[SubmitOutcome]:
    """Each request's own outcome, in order. An accepted job is durable in the ledger."""
    now = core.now()
    checked_name("tenant", caller.tenant)
    lanes = QueueLimits(core)
    prepared, terms, refused = await _prepared(core, caller, requests, lanes, now)
    if not prepared:
        return list(refused.values())
    await refuse_new_users(core, caller.tenant, caller.key, prepared, now)
    if core.catalog.task_defaults is not None:
        await _check_types(core, caller.tenant, prepared, terms, lanes, now)
    await lanes.count({on.plan[0].service for on in terms if on.room})
    for n, (each, on) in enumerate(zip(prepared, terms, strict=True)):  # no await: atomic
        if on.room and each.refusal is None:
            full = lanes.refusal(on, len(each.cells) or 1, now)
            prepared[n] = each._replace(refusal=full)
    core.coming.update(lanes.coming)
    outcomes = await asyncio.shield(_write(core, prepared, terms, lanes.coming, now))
    if not refused:
        return outcomes
    answers = iter(outcomes)
    return [refused[i] if i in refused else next(answers) for i in range(len(requests))]


async def _check_types(
    core: Core,
    tenant: str,
    prepared: list[Submission],
    terms: list[Terms],
    lanes: QueueLimits,
    now: int,
) -> None:
    """Refuses jobs of new task types if their tenant has too many. A known idempotency key is still
    answered: the ledger decides that. While the index does not answer, no type is removed."""
    types = core.task_types
    for n, (each, on) in enumerate(zip(prepared, terms, strict=True)):
        names = task_types(core.catalog, on.plan)
        if not types.has_room_for(tenant, names) and types.may_compare(tenant, now):
            stats = await lanes.ask(core.index.stats)
            if stats is not None:
                types.keep(tenant, await _services_in_use(core, stats), now)
        if types.has_room_for(tenant, names):
            types.see(((tenant, name) for name in names), now)
        elif each.refusal is None:
            prepared[n] = each._replace(refusal=types.refusal())


async def _services_in_use(core: Core, stats: Stats) -> set[str]:
    waiting = {depth.service for depth in stats.depths}
    return waiting.union(service for service, _ in await core.ledger.running_in())


async def _prepared(
    core: Core, caller: Caller, requests: Sequence[NewJob], lanes: QueueLimits, now: int
) -> tuple[list[Submission], list[Terms], dict[int, FairlaneError]]:
    """The submissions to write, their terms, and the errors of refused requests by position."""
    prepared: list[Submission] = []
    terms: list[Terms] = []
    refused: dict[int, FairlaneError] = {}
    granted: dict[Kind, Granted] = {}
    told = await _tiers_told(core, caller, requests) if core.tier_source is not None else {}
    for i, request in enumerate(requests):
        try:
            tier = request.tier or told.get(request.user or "")
            tier = tier or await _tier_of_user(core, caller, request)
            kind = (tier, alike(request))
            found = _known(granted, kind)
            if found is None:
                found = _granted(core, caller, request, tier, now)
                if request.matrix is None:
                    await lanes.check(found.terms.plan)
                    granted[kind] = found
            job = _submission(core, caller, request, found, now)
            if job.cells:
                await lanes.check(*(cell.common.plan for cell in job.cells))
            prepared.append(job)
            terms.append(found.terms)
        except FairlaneError as error:
            refused[i] = error
    return prepared, terms, refused


def _known(granted: Mapping[Kind, Granted], kind: Kind) -> Granted | None:
    try:
        return granted.get(kind)
    except TypeError:
        raise InvalidInput("regions, capabilities and tags are tuples of texts") from None


async def _write(
    core: Core, prepared: list[Submission], terms: list[Terms], coming: Counter[str], now: int
) -> list[SubmitOutcome]:
    """Write to the ledger, then tell the index. The caller shields this from cancellation."""
    try:
        return await _written(core, prepared, terms, now)
    finally:
        jobs_joined(core, coming)


async def _written(
    core: Core, prepared: list[Submission], terms: list[Terms], now: int
) -> list[SubmitOutcome]:
    written = await core.ledger.submit(prepared)
    outcomes = [
        InvalidInput(f"cannot be stored: {outcome.error}")
        if isinstance(outcome, Unwritten)
        else outcome
        for outcome in written.outcomes
    ]
    for submission, outcome in zip(prepared, outcomes, strict=True):
        if isinstance(outcome, Refused):
            outcome.tier = submission.common.tier
            if outcome.code == "queue_full" and not outcome.frees_at:
                waiting = outcome.limit - outcome.left
                services = {*core.catalog.services, *(on.plan[0].service for on in terms)}
                outcome.frees_at = drained_at(core, waiting, now, services)
    core.instrumentation.submitted(zip(prepared, outcomes, strict=True))
    job_log.submitted(prepared, outcomes)
    entries = _entries(core, prepared, outcomes)
    for (lane, rank), n in Counter((each.lane, each.rank) for each in entries).items():
        core.activity.arrived(service_of(lane), core.catalog.tiers.names[rank], now, n)
    with core.telling_index():
        for start in range(0, len(entries), INDEX_BATCH):
            if start:
                await asyncio.sleep(0)  # a large fan-out lets other calls run
            await core.index.put(entries[start : start + INDEX_BATCH], now)
        core.ledger.published(written.receipts)
    await _estimate_ends(core, prepared, outcomes, now)
    return outcomes


async def _estimate_ends(
    core: Core, prepared: list[Submission], outcomes: list[SubmitOutcome], now: int
) -> None:
    """Tell users with too many pending jobs when the next of their jobs probably ends."""
    refused: dict[str, list[Refused]] = {}
    owners: dict[str, Owner] = {}
    for item, outcome in zip(prepared, outcomes, strict=True):
        if isinstance(outcome, Refused) and outcome.code == "too_many_pending":
            refused.setdefault(item.who, []).append(outcome)
            owners[item.who] = Owner(item.common.tenant, item.user, item.common.key)
    for who, owner in itertools.islice(owners.items(), MAX_ESTIMATED_USERS):
        frees_at = await place_frees_at(core, owner, now)
        for each in refused[who]:
            each.frees_at = frees_at


async def _tiers_told(core: Core, caller: Caller, requests: Sequence[NewJob]) -> Mapping[str, str]:
    """The tiers of these requests' users from the tier source, in one call."""
    users = {request.user for request in requests if request.user and not request.tier}
    askable = [user for user in users if "\0" not in user and _is_text(user)]
    if core.tier_source is None or not askable:
        return {}
    told = await core.tier_source.tiers_of(caller.tenant, askable)
    for user, tier in told.items():
        _know(core, (caller.tenant, user), tier)
    return told


async def _tier_of_user(core: Core, caller: Caller, request: NewJob) -> str:
    """The tier that the ledger stores for the user, else the default tier."""
    if request.user is None:
        return core.catalog.tiers.default
    who = (caller.tenant, request.user)
    known = core.tiers_of_users.get(who)
    if known is None:
        if "\0" in request.user or not _is_text(request.user):
            raise InvalidInput("a user's name is text without U+0000")
        stored = await core.ledger.tier_of(*who)
        known = stored if stored in core.catalog.tiers.names else core.catalog.tiers.default
        _know(core, who, known)
    return known


def likely_tier(core: Core, tenant: str, user: str | None, tier: str | None) -> str:
    """The tier that a job for this user would have, from the cache alone."""
    known = core.tiers_of_users.get((tenant, user)) if user is not None else None
    return tier or known or core.catalog.tiers.default


def _know(core: Core, who: tuple[str, str], tier: str) -> None:
    if len(core.tiers_of_users) >= MAX_KNOWN_USERS:
        core.tiers_of_users.clear()
    core.tiers_of_users[who] = tier


def _is_text(name: str) -> bool:
    """Whether the name can be encoded as UTF-8: a lone surrogate cannot be stored."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entries(
    core: Core, prepared: Sequence[Submission], outcomes: Sequence[SubmitOutcome]
) -> list[Entry]:
    """The index entries of accepted jobs. Jobs with the same terms differ only in id and user, so
    the rest of their entry is computed once."""
    entries = []
    places: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
    for submission, outcome in zip(prepared, outcomes, strict=True):
        if not isinstance(outcome, SubmissionAccepted):
            continue
        for each in submission.cells or (submission,):
            place = places.get(id(each.common))
            if place is None:
                made = _place(core, each)
                place = places[id(each.common)] = (made[1:BEFORE_USER], made[BEFORE_USER + 1 :])
            entries.append(entry((each.id, *place[0], each.who, *place[1])))
    return entries


def _place(core: Core, submission: Submission) -> Entry:
    common = submission.common
    step = WaitingStep(
        job=submission.id,
        rev=1,
        lane=common.plan[0].lane,
        band=Band.TIER,
        tier=common.tier,
        level=common.tier,
        ready_at=common.ready_at,
        waited=0,
        paid_at=0,
        user=submission.who,
        model=common.model,
    )
    return core.place_in_line(step)


# --- preparing ---------------------------------------------------------------------------------
def _granted(core: Core, caller: Caller, request: NewJob, tier: str, now: int) -> Granted:
    model, duration, run_at = _checked_model(request), request.duration, request.run_at
    if run_at is not None and not 0 <= run_at <= now + MAX_MICROSECONDS:
        raise InvalidInput("run_at is a time within the next ten years, in microseconds")
    terms = core.terms.of(request, tier)
    first = terms.plan[0]
    ready_at = max(now, run_at) if run_at else now
    common = Common(
        tenant=caller.tenant,
        key=caller.key,
        name=request.name,
        plan=terms.plan,
        model=model,
        duration=duration,
        tier=terms.tier.name,
        timeout=first.timeout,
        ready_at=ready_at,
        give_up_at=ready_at + first.max_wait if first.max_wait else None,
        created_at=now,
        tags=request.tags,
        callback=request.callback,
        trace=request.trace,
        quota=terms.quota,
        on_cell_failure=_checked_on_cell_failure(request),
    )
    return Granted(terms, common, admit_duration(terms.tier, duration) if duration else None)


def _checked_on_cell_failure(request: NewJob) -> OnCellFailure:
    for known in (OnCellFailure.CONTINUE, OnCellFailure.STOP):
        if request.on_cell_failure == known:
            if known is OnCellFailure.STOP and request.matrix is None:
                raise InvalidInput("on_cell_failure needs a matrix; add one, or leave it out")
            return known
    raise InvalidInput('on_cell_failure is "continue" or "stop"')


def _checked_model(request: NewJob) -> str:
    if "|" in request.model or len(request.model) > 100:
        raise InvalidInput('a model name has at most 100 characters and no "|"')
    return request.model


def _submission(
    core: Core, caller: Caller, request: NewJob, granted: Granted, now: int
) -> Submission:
    user, limits = request.user, core.catalog.limits
    who = fair_user(caller.tenant, user, caller.key)
    text = json_text("input", request.input, limits.input_bytes)
    _, common, refusal = granted
    submission = new_submission(
        (core.ids.new(now), user, who, text, common, refusal, None, 0, None, None, ())
    )
    if request.idempotency_key is not None:
        submission = submission._replace(
            idempotency=_idempotency(caller, request),
            keep_keys=round(limits.keep_keys * SECOND),
        )
    if request.matrix is not None:
        cells = _cells(core, request, submission, now)
        submission = submission._replace(cells=cells, common=common._replace(give_up_at=None))
    return submission


def _cells(core: Core, request: NewJob, parent: Submission, now: int) -> tuple[Submission, ...]:
    """One execution (cell) for every combination. `model` and `region` set the cell's model and
    region, the other axes are added to its input."""
    axes = request.matrix or {}
    check_matrix(axes, core.catalog.limits.cells)
    if not isinstance(request.input, dict | None):
        raise InvalidInput("a job with a matrix takes an object as input")
    cells = []
    commons: dict[tuple[str | None, str | None], Common] = {}
    for values in itertools.product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        _check_cell(core, request, parent, cell)
        where = (cell.get("model"), cell.get("region"))
        if where not in commons:
            commons[where] = _cell_common(core, request, parent.common, *where)
        cells.append(
            parent._replace(
                id=core.ids.new(now),
                input=None,
                common=commons[where],
                parent=parent.id,
                cell=cell,
                idempotency=None,
            )
        )
    return tuple(cells)


def _cell_common(
    core: Core, request: NewJob, parent: Common, model: str | None, region: str | None
) -> Common:
    """What all cells with this model and region share."""
    own = request._replace(
        model=request.model if model is None else model,
        regions=request.regions if region is None else (region,),
    )
    return parent._replace(
        plan=core.terms.of(own, parent.tier).plan,
        model=_checked_model(own),
        callback=None,
        on_cell_failure=OnCellFailure.CONTINUE,
    )


def _check_cell(core: Core, request: NewJob, parent: Submission, cell: dict[str, str]) -> None:
    """Raises InvalidInput if the input of this cell (its own values over its parent's input) is too
    large. The input is serialized only if an upper bound of its size exceeds the limit."""
    own_bytes, most = len(json_text("input", cell).encode()), core.catalog.limits.input_bytes
    if len((parent.input or "").encode()) + own_bytes > most:
        json_text("input", {**(request.input or {}), **cell}, most)


def _idempotency(caller: Caller, request: NewJob) -> tuple[str, str, str]:
    """(scope, idempotency key, hash of the request as canonical JSON). The hash leaves out the
    trace: a repeated request has another one."""
    said = request._replace(trace=None)._asdict()
    for name, default in NEWER_FIELDS.items():
        if said[name] == default:
            del said[name]
    body = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    scope = f"{caller.tenant}/{caller.key}"
    return scope, request.idempotency_key or "", hashlib.sha256(body).hexdigest()
