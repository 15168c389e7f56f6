"""Builds settings from the configuration: checks names, reads secrets, fills dependent defaults."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fairlane.config.celery_settings import celery_bridge, wrong_celery, wrong_celery_task
from fairlane.config.file_schema import File, QualityCheckTable, ServiceTable, TaskTable
from fairlane.config.setting_errors import BadSettings, SettingError, Sources, suggestion, unknown
from fairlane.config.settings import (
    Callbacks,
    CeleryLoads,
    PrioritySource,
    ServerSettings,
    Settings,
)
from fairlane.errors import FairlaneError
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.credits import CreditSettings
from fairlane.model.endpoint import Endpoint, wrong_header
from fairlane.model.quality_check import OnFail, QualityCheck, check_service_name
from fairlane.model.service import (
    Affinity,
    Executor,
    Fairness,
    Overrun,
    Provider,
    Region,
    RetryPlace,
    Service,
    Shares,
)
from fairlane.model.tier import Tier, Tiers
from fairlane.presets import tasks

ONE_REDIS = ("redis://", "rediss://", "unix://")
SEVERAL_REDIS = tuple(
    f"redis{tls}+{kind}://" for kind in ("sentinel", "cluster") for tls in ("", "s")
)
FROM_ENVIRONMENT = "env:"


def build(file: File, source: str, sources: Sources, environment: Mapping[str, str]) -> Settings:
    problems = [
        SettingError(place, text, sources.of(tuple(place.split("."))))
        for place, text in _wrong(file)
    ]
    secrets = ConfiguredSecrets(environment)
    endpoints = {
        name: _endpoint(f"services.{name}", table, secrets)
        for name, table in file.services.items()
        if _called(table)
    }
    endpoints |= dict(_check_endpoints(file, secrets))
    priority = _priority(file, secrets)
    problems += [
        SettingError(place, text, sources.of(tuple(place.split("."))))
        for place, text in secrets.problems
    ]
    if problems:
        raise BadSettings(problems)
    try:
        catalog = _catalog(file)
    except FairlaneError as error:
        raise BadSettings([SettingError("", str(error), source)]) from None
    return Settings(
        catalog=catalog,
        server=_server(file),
        endpoints=endpoints,
        priority=priority,
        callbacks=Callbacks(tuple(file.callbacks.ports), tuple(file.callbacks.private)),
        celery=CeleryLoads(file.celery.redis_url, file.celery.key_prefix),
        celery_bridge=celery_bridge(file),
        source=source,
        notes=tuple(_notes(file)),
    )


class ConfiguredSecrets:
    """Header values that name an environment variable instead of holding a secret."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[tuple[str, str]] = []

    def headers(self, place: str, given: Mapping[str, str]) -> dict[str, str]:
        found = {name: self._value(f"{place}.{name}", value) for name, value in given.items()}
        for name, value in found.items():
            if (wrong := wrong_header(name, value)) is not None:
                self.problems.append((f"{place}.{name}", wrong))
        return found

    def _value(self, place: str, value: str) -> str:
        if not value.startswith(FROM_ENVIRONMENT):
            return value
        name = value.removeprefix(FROM_ENVIRONMENT)
        if name not in self._environment:
            self.problems.append((place, f"the environment variable {name} is not set"))
        return self._environment.get(name, "")


# --- what is wrong -------------------------------------------------------------------------------
def _wrong(file: File) -> Iterator[tuple[str, str]]:
    yield from _wrong_server(file)
    yield from _wrong_tiers(file)
    yield from wrong_celery(file)
    for name, table in file.services.items():
        yield from _wrong_service(f"services.{name}", table, file)
        if table.quality_check is not None:
            yield from _wrong_check(name, table.quality_check, file)
    known = [*file.services]
    for name, steps in file.pipelines.items():
        if not steps:
            yield f"pipelines.{name}", "has no steps"
        for step in steps:
            if step not in known and file.tasks is None:
                yield f"pipelines.{name}", unknown("service", step, known)
    if file.priority.url is not None and file.priority.fallback not in file.tiers.order:
        yield "priority.fallback", unknown("tier", file.priority.fallback, file.tiers.order)


def _wrong_server(file: File) -> Iterator[tuple[str, str]]:
    url = file.server.database_url
    if url is not None and not url.startswith(("postgres://", "postgresql")):
        scheme = url.partition(":")[0][:20]
        yield "server.database_url", f'needs a PostgreSQL URL, not "{scheme}:…"'
    redis = file.server.redis_url
    if redis is not None and not redis.startswith((*ONE_REDIS, *SEVERAL_REDIS)):
        names = ", ".join((*ONE_REDIS, *SEVERAL_REDIS))
        yield "server.redis_url", f"a URL begins with one of {names}"
    redis = file.celery.redis_url
    if redis is not None and not redis.startswith(ONE_REDIS):
        yield "celery.redis_url", f"a URL begins with one of {', '.join(ONE_REDIS)}"
    for each in file.server.trusted_proxies:
        try:
            ipaddress.ip_network(each)
        except ValueError:
            yield "server.trusted_proxies", f'"{each}" is not an IP address or network'


def _wrong_tiers(file: File) -> Iterator[tuple[str, str]]:
    order = file.tiers.order
    if not order or len(set(order)) < len(order):
        yield "tiers.order", "names every tier once, best first"
    if file.tiers.default is not None and file.tiers.default not in order:
        yield "tiers.default", unknown("tier", file.tiers.default, order)
    for name, table in file.tiers.named.items():
        if name not in order:
            yield f"tiers.{name}", f"is not in tiers.order{suggestion(name, order)}"
        for reached in table.promote:
            if reached not in order:
                yield f"tiers.{name}.promote", unknown("tier", reached, order)


def _wrong_service(place: str, table: ServiceTable, file: File) -> Iterator[tuple[str, str]]:
    if table.provider is not None and table.provider not in file.providers:
        yield f"{place}.provider", unknown("provider", table.provider, file.providers)
    yield from wrong_celery_task(place, table, file)
    if table.celery_task is not None:
        return
    addresses = [table.url, *(region.url for region in table.regions.values())]
    if table.executor not in (None, "http") and any(addresses):
        yield (
            f"{place}.url",
            f'a service with a url has executor "http", not "{table.executor}"',
        )
    if not _called(table):
        for setting in ("headers", "retry_on", "cancel_path"):
            if getattr(table, setting):
                yield (
                    f"{place}.{setting}",
                    "is only for a service with a url; add a url",
                )
        return
    if table.url is None:
        without = [name for name, region in table.regions.items() if region.url is None]
        if without or not table.regions:
            yield (
                f"{place}.url",
                "is needed: where is it called?"
                + (f" (regions without one: {', '.join(without)})" if without else ""),
            )


def _wrong_check(name: str, table: QualityCheckTable, file: File) -> Iterator[tuple[str, str]]:
    place, implied = f"services.{name}.quality_check", check_service_name(name)
    if table.service is not None:
        if table.service not in file.services and file.tasks is None:
            yield f"{place}.service", unknown("service", table.service, file.services)
        for setting in sorted(table.model_fields_set - {"service", "on_fail"}):
            yield f"{place}.{setting}", f"belongs to the service {table.service}; set it there"
    elif implied in file.services:
        yield place, f'the service "{implied}" is configured; set service = "{implied}" to use it'
    if table.headers and table.url is None and table.service is None:
        yield f"{place}.headers", "is only for a check with a url; add a url"


def _called(table: ServiceTable) -> bool:
    """Whether the dispatcher calls it: it has a URL, or its executor says so."""
    addresses = [table.url, *(region.url for region in table.regions.values())]
    return table.celery_task is None and (table.executor == "http" or any(addresses))


def _notes(file: File) -> Iterator[str]:
    if file.server.redis_url is not None and file.server.database_url is None:
        yield "redis_url is not used without database_url: the queue is embedded in one process"
    if not file.services and file.tasks is None:
        yield "no service is configured, so any task type is accepted"


# --- what it becomes -----------------------------------------------------------------------------
def _server(file: File) -> ServerSettings:
    table = file.server
    return ServerSettings(
        host=table.host,
        port=table.port,
        data=Path(table.data),
        database_url=table.database_url,
        redis_url=table.redis_url if table.database_url is not None else None,
        allowed_hosts=tuple(each.lower() for each in table.allowed_hosts),
        trusted_proxies=tuple(table.trusted_proxies),
        origins=tuple(each.rstrip("/").lower() for each in table.origins),
        max_body=table.max_body,
        body_timeout=table.body_timeout,
        key_rate=table.key_rate,
        lease=table.lease,
        grace=table.grace,
        submits=table.submits,
        connections=table.connections,
        access_log=table.access_log,
        log_level=table.log_level,
        log_format=table.log_format,
        wait_for_stores=table.wait_for_stores,
        simulated_speed=table.simulated_speed,
        unsafe=table.unsafe,
    )


def _catalog(file: File) -> Catalog:
    return Catalog(
        _tiers(file),
        [*_services(file)],
        [Provider(name, table.limit, table.rate) for name, table in file.providers.items()],
        {name: tuple(steps) for name, steps in file.pipelines.items()},
        Limits(**file.limits.model_dump()),
        _task_defaults(file),
        _credits(file),
    )


def _credits(file: File) -> CreditSettings:
    table = file.credits
    return CreditSettings(table.currency, tuple(table.skip_prices), table.longer_skip_price)


def _tiers(file: File) -> Tiers:
    """Tiers named high, medium and low have built-in defaults."""
    usual = {tier.name: tier for tier in tasks().tiers.all}
    found = []
    for name in file.tiers.order:
        table = file.tiers.named.get(name)
        tier = usual.get(name, Tier(name))
        if tier.promote.keys() - set(file.tiers.order):
            tier = replace(tier, promote={})
        given = table.model_dump(exclude_unset=True) if table else {}
        found.append(replace(tier, **given))
    default = file.tiers.default
    if default is None and "medium" in file.tiers.order:
        default = "medium"
    return Tiers(found, default)


def _task_defaults(file: File) -> Service | None:
    if file.tasks is not None:
        return _task("task", file.tasks)
    return None if file.services else tasks().task_defaults


def _services(file: File) -> Iterator[Service]:
    """The configured services, and those that quality checks imply."""
    for name, table in file.services.items():
        service, check = _service(name, table), table.quality_check
        yield service
        if check is not None and check.service is None:
            yield Service(
                check_service_name(name),
                executor=Executor.HTTP if check.url is not None else Executor.PULL,
                limit=check.limit,
                timeout=check.timeout,
                max_attempts=check.max_attempts,
                affinity=Affinity.NONE,
                fairness=service.fairness,
            )


def _quality_check(name: str, table: QualityCheckTable | None) -> QualityCheck | None:
    if table is None:
        return None
    return QualityCheck(table.service or check_service_name(name), OnFail(table.on_fail))


def _check_endpoints(file: File, secrets: ConfiguredSecrets) -> Iterator[tuple[str, Endpoint]]:
    for name, table in file.services.items():
        check = table.quality_check
        if check is not None and check.url is not None:
            headers = secrets.headers(f"services.{name}.quality_check.headers", check.headers)
            yield check_service_name(name), Endpoint(check.url, headers=headers)


def _executor(table: ServiceTable) -> Executor:
    if table.celery_task is not None:
        return Executor.CELERY
    return Executor(table.executor or ("http" if _called(table) else "pull"))


def _service(name: str, table: ServiceTable) -> Service:
    task, executor = _task(name, table), _executor(table)
    return replace(
        task,
        executor=executor,
        affinity=Affinity.NONE if executor is Executor.CELERY else task.affinity,
        provider=table.provider,
        regions={name: Region(name, region.limit) for name, region in table.regions.items()},
        failover=table.failover,
        paused=table.paused,
        quality_check=_quality_check(name, table.quality_check),
    )


def _task(name: str, table: TaskTable) -> Service:
    return Service(
        name,
        limit=table.limit,
        rate=table.rate,
        waiting=table.waiting,
        timeout=table.timeout,
        max_wait=table.max_wait,
        max_attempts=table.max_attempts,
        backoff=tuple(table.backoff),
        retry_place=RetryPlace(table.retry_place),
        overrun=None if table.overrun is None else Overrun(table.overrun),
        affinity=Affinity(table.affinity),
        batch_size=table.batch_size,
        model_load=table.model_load,
        fairness=Fairness(table.fairness),
        shares=Shares(table.shares.skip, table.shares.front, table.shares.aged),
        capabilities=frozenset(table.capabilities),
    )


def _endpoint(place: str, table: ServiceTable, secrets: ConfiguredSecrets) -> Endpoint:
    return Endpoint(
        url=table.url or "",
        regions={name: region.url for name, region in table.regions.items() if region.url},
        headers=secrets.headers(f"{place}.headers", table.headers),
        max_response=table.max_response,
        retry_on=frozenset(table.retry_on),
        cancel_path=table.cancel_path or "",
    )


def _priority(file: File, secrets: ConfiguredSecrets) -> PrioritySource | None:
    table = file.priority
    if table.url is None:
        return None
    headers = secrets.headers("priority.headers", table.headers)
    return PrioritySource(table.url, table.fallback, table.timeout, table.cache, headers)
