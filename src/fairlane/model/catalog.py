"""The catalog: every configured tier, service, provider and pipeline. It is checked once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fairlane.errors import InvalidInput, UnknownName
from fairlane.model.credits import CreditSettings
from fairlane.model.quality_check import QualityCheck
from fairlane.model.service import (
    RATE_WINDOW_MICROSECONDS,
    Executor,
    Pool,
    Provider,
    Service,
    rate_pool,
)
from fairlane.model.setting_bounds import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_INTERVAL_SECONDS,
    MAX_SECONDS,
    MAX_WAITING_JOBS,
    MIN_TIER_SHARE,
    demand,
)
from fairlane.model.tier import Tiers

MAX_TYPES_AT_HAND = 10_000
NAME = re.compile(r"[A-Za-z0-9_.\-]{1,100}")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the whole queue. Times are seconds, sizes bytes."""

    waiting: int = 1_000_000
    input_bytes: int = 1 << 20
    result_bytes: int = 8 << 20
    context_bytes: int = 32 << 20
    cells: int = 10_000
    keep_finished: float = 7 * 86_400
    keep_dead: float = 30 * 86_400
    keep_keys: float = 86_400
    cleanup_interval: float = 10
    lowest_tier_share: float = 0.5
    users_per_key: int = 10_000

    def __post_init__(self) -> None:
        demand("limits", MAX_WAITING_JOBS, waiting=self.waiting)
        demand("limits", MAX_COUNT, cells=self.cells, users_per_key=self.users_per_key)
        if not MIN_TIER_SHARE <= self.lowest_tier_share <= 1:
            raise InvalidInput(
                f"limits: lowest_tier_share is {MIN_TIER_SHARE} to 1, not {self.lowest_tier_share}"
            )
        demand("limits", MAX_BYTES, input_bytes=self.input_bytes, result_bytes=self.result_bytes)
        demand("limits", MAX_BYTES, context_bytes=self.context_bytes)
        demand("limits", MAX_SECONDS, keep_finished=self.keep_finished, keep_dead=self.keep_dead)
        demand("limits", MAX_SECONDS, keep_keys=self.keep_keys)
        demand("limits", MAX_INTERVAL_SECONDS, cleanup_interval=self.cleanup_interval)


class Catalog:
    """With `task_defaults`, the queue also accepts services that are not configured, as task types.
    Task types are not in `services`: they exist while they have jobs."""

    def __init__(
        self,
        tiers: Tiers,
        services: Iterable[Service] = (),
        providers: Iterable[Provider] = (),
        pipelines: Mapping[str, tuple[str, ...]] | None = None,
        limits: Limits | None = None,
        task_defaults: Service | None = None,
        credits: CreditSettings | None = None,
    ) -> None:
        self.tiers = tiers
        self.services = {service.name: service for service in services}
        self.providers = {provider.name: provider for provider in providers}
        self.pipelines = dict(pipelines or {})
        self.limits = limits or Limits()
        self.task_defaults = task_defaults
        self.credits = credits or CreditSettings()
        self._types: dict[str, Service] = {}
        self._check()

    def service(self, name: str) -> Service:
        return self.services.get(name) or self._types.get(name) or self._task_type(name)

    def knows(self, name: str) -> bool:
        """Whether the queue accepts a job of this service."""
        return name in self.services or self.task_defaults is not None

    def _task_type(self, name: str) -> Service:
        if self.task_defaults is None:
            raise UnknownName("service", name, self.services)
        checked_name("service", name)
        if len(self._types) >= MAX_TYPES_AT_HAND:
            self._types.clear()
        found = self._types[name] = replace(self.task_defaults, name=name)
        return found

    def steps(self, name: str) -> tuple[Service, ...]:
        """The services of a pipeline, or the one service of that name."""
        pipeline = self.pipelines.get(name)
        if pipeline is not None:
            return tuple(self.service(each) for each in pipeline)
        if name not in self.services and self.task_defaults is None:
            known = [*self.pipelines, *self.services]
            hint = "a [tasks] table in fairlane.toml lets any task type in"
            raise UnknownName("pipeline or service", name, known, hint)
        return (self.service(name),)

    def pools(self, service_name: str, region: str | None) -> tuple[Pool, ...]:
        """Every limited pool in which a step of this service needs a slot, when it runs in this
        region."""
        service = self.service(service_name)
        found = _limited(f"svc:{service.name}", service.limit, service.rate)
        if region in service.regions:
            found += _limited(f"svc:{service.name}@{region}", service.regions[region].limit, 0)
        if service.provider is not None:
            provider = self.providers[service.provider]
            found += _limited(f"prov:{provider.name}", provider.limit, provider.rate)
        return found

    def all_pools(self) -> dict[str, Pool]:
        """Every limited pool, by name."""
        found = {}
        for service in self.services.values():
            for region in [None, *service.regions]:
                found.update({pool.name: pool for pool in self.pools(service.name, region)})
        return found

    def _check(self) -> None:
        for kind, names in (
            ("tier", self.tiers.names),
            ("service", self.services),
            ("provider", self.providers),
            ("pipeline", self.pipelines),
        ):
            for name in names:
                checked_name(kind, name)
        for service in self.services.values():
            if service.provider is not None and service.provider not in self.providers:
                raise UnknownName("provider", service.provider, self.providers)
            for region in service.regions:
                checked_name("region", region)
            for capability in service.capabilities:
                checked_name("capability", capability)
            self._check_quality_check(service, service.quality_check)
        for name, steps in self.pipelines.items():
            if not steps:
                raise InvalidInput(f'pipeline "{name}" has no steps')
            for each in steps:
                self.service(each)

    def _check_quality_check(self, service: Service, setting: QualityCheck | None) -> None:
        if setting is None:
            return
        check = self.service(setting.service)
        if Executor.CALLER in (service.executor, check.executor):
            raise InvalidInput(
                f'service "{service.name}": the caller runs it or its quality check itself, so '
                "Fairlane cannot check it"
            )
        if check.quality_check is not None:
            raise InvalidInput(
                f'service "{service.name}": its quality check "{check.name}" has a quality check'
            )


def checked_name(kind: str, name: str) -> str:
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f'{kind} "{name[:100]}": a name is 1 to 100 of letters, digits, "_", "-" and "."'
        )
    return name


def _limited(name: str, limit: int, rate: int) -> tuple[Pool, ...]:
    slots = (Pool(name, limit),) if limit else ()
    return (*slots, Pool(rate_pool(name), rate, RATE_WINDOW_MICROSECONDS)) if rate else slots
