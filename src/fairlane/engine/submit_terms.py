"""Submit terms: the tier, the frozen steps (execution plan) and the quota of a job. They are cached
for equal requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairlane.errors import InvalidInput, UnknownName
from fairlane.model.catalog import Catalog, checked_name
from fairlane.model.job import NewJob
from fairlane.model.service import Executor, Service
from fairlane.model.step import Lane, Plan, RetryTerms, Step
from fairlane.model.tier import Tier
from fairlane.policy.queue_limits import room
from fairlane.policy.quotas import Quota, quota_of
from fairlane.units import SECOND

MAX_CACHED_TERMS = 10_000
MAX_MICROSECONDS = 10 * 365 * 86_400 * SECOND
MAX_RETRIES = 100
MAX_PAUSES = 20
MAX_PAUSE = 86_400 * SECOND
NONE_DECLARED = RetryTerms()


class Terms(NamedTuple):
    tier: Tier
    rank: int
    plan: Plan
    quota: Quota
    room: int = 0
    """How many jobs may wait for the first service when a job of this tier arrives; 0 = no
    limit."""

    @property
    def cap(self) -> int:
        return self.tier.max_running_per_user


class TermsBook:
    """The cache of terms for one version of the settings and of the retry terms that workers
    declare."""

    def __init__(self, catalog: Catalog, declared: Mapping[str, RetryTerms]) -> None:
        self._catalog, self._declared = catalog, declared
        self._known: dict[tuple[object, ...], Terms] = {}

    def of(self, request: NewJob, tier_name: str) -> Terms:
        key = (
            request.name,
            tier_name,
            request.regions,
            request.capabilities,
            request.timeout,
            request.max_wait,
            request.max_retries,
            request.backoff,
        )
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_CACHED_TERMS:
                self._known.clear()
            found = self._known[key] = self._work_out(request, tier_name)
        return found

    def _work_out(self, request: NewJob, tier_name: str) -> Terms:
        catalog = self._catalog
        tier = catalog.tiers[tier_name]
        services = catalog.steps(request.name)
        rank, share = catalog.tiers.rank(tier_name), catalog.limits.lowest_tier_share
        for region in request.regions:
            if not any(region in service.regions for service in services):
                raise UnknownName("region", region, {r for s in services for r in s.regions})
        return Terms(
            tier,
            rank,
            tuple(step for service in services for step in self._steps(service, request, tier)),
            quota_of(catalog, tier_name),
            room(services[0].waiting, rank, len(catalog.tiers), share),
        )

    def _steps(self, service: Service, request: NewJob, tier: Tier) -> Iterator[Step]:
        """The step at this service, and its quality check if it has one. Of the request's terms,
        the check keeps only the regions: the others are meant for the work."""
        yield self._step(service, request, tier)
        check = service.quality_check
        if check is not None:
            only_regions = NewJob(request.name, regions=request.regions)
            step = self._step(self._catalog.service(check.service), only_regions, tier)
            yield step._replace(quality_check=check.on_fail)

    def _step(self, service: Service, request: NewJob, tier: Tier) -> Step:
        """The step of a job at this service. Precedence: the request, then the terms that a worker
        declares for the task type, then the settings of the service, then those of the tier."""
        regions = tuple(sorted({region for region in request.regions if region in service.regions}))
        needs = service.capabilities.union(
            checked_name("capability", each) for each in request.capabilities
        )
        _check(request)
        declared = NONE_DECLARED
        if service.executor is Executor.PULL:
            declared = self._declared.get(service.name, NONE_DECLARED)
        retries = request.max_retries
        if retries is None:
            retries = declared.max_retries
        given = request.timeout or declared.timeout
        return Step(
            service=service.name,
            executor=service.executor,
            lane=Lane(service.name, regions, tuple(sorted(needs))).name,
            timeout=given or round((service.timeout or tier.timeout) * SECOND),
            max_attempts=service.max_attempts or 1 + tier.max_retries
            if retries is None
            else 1 + retries,
            max_wait=request.max_wait or round(service.max_wait * SECOND),
            backoff=request.backoff or declared.backoff,
            timeout_given=given > 0,
        )


def _check(request: NewJob) -> None:
    if not (0 <= request.timeout <= MAX_MICROSECONDS and 0 <= request.max_wait <= MAX_MICROSECONDS):
        raise InvalidInput("a time limit is 0 to ten years, in microseconds")
    check_retries(request.max_retries, request.backoff)


def check_retries(max_retries: int | None, backoff: tuple[int, ...]) -> None:
    """Raises InvalidInput if these values are out of range. `backoff` is in microseconds."""
    if max_retries is not None and not 0 <= max_retries <= MAX_RETRIES:
        raise InvalidInput(f"max_retries is 0 to {MAX_RETRIES}, not {max_retries}")
    if len(backoff) > MAX_PAUSES:
        raise InvalidInput(f"a backoff has at most {MAX_PAUSES} pauses, not {len(backoff)}")
    if not all(0 <= pause <= MAX_PAUSE for pause in backoff):
        raise InvalidInput("a pause of a backoff is 0 to 86,400 s, given in microseconds")
