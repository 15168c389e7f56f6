"""Explains the settings in plain words, for `fairlane check`."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.config.settings import ServerSettings, Settings
from fairlane.model.catalog import Catalog
from fairlane.model.credits import CreditSettings
from fairlane.model.quality_check import OnFail, QualityCheck
from fairlane.model.service import Executor, Fairness, Service
from fairlane.model.tier import Tier


def explain(settings: Settings) -> Iterator[str]:
    """One sentence per line."""
    catalog = settings.catalog
    yield f"Settings: {settings.source}"
    yield from _server(settings.server)
    yield f"Tiers, best first: {', '.join(catalog.tiers.names)}"
    for tier in catalog.tiers.all:
        default = " (for users without one)" if tier.name == catalog.tiers.default else ""
        yield f"  {tier.name}{default}: {_tier(tier)}"
    if catalog.services:
        yield "Services:"
    for service in catalog.services.values():
        yield f"  {service.name}: {_service(settings, service)}"
    if catalog.task_defaults is not None:
        yield f"Any other task type is accepted: {_shared(catalog.task_defaults)}"
    for provider in catalog.providers.values():
        most = _together(provider.limit, provider.rate) or "no limit"
        yield f"Provider {provider.name}: {most}, over all of its services"
    for name, steps in catalog.pipelines.items():
        yield f"Pipeline {name}: {' → '.join(steps)}"
    yield from _queue(catalog)
    yield f"Paid skips: {_skips(catalog.credits)}"
    if settings.priority is not None:
        yield (
            f"The Priority Service at {settings.priority.url} names the tiers of users; a user "
            f"whose tier it has never named gets {settings.priority.fallback}"
        )
    for note in settings.notes:
        yield f"Note: {note}"


def _server(server: ServerSettings) -> Iterator[str]:
    places = {
        "embedded": f"embedded: one process, the ledger in {server.data}",
        "shared": "the ledger in PostgreSQL, one process",
        "cluster": "a cluster: PostgreSQL and Redis, any number of processes",
    }
    yield f"Mode: {places[server.mode]}"
    reach = "only from this machine" if server.loopback else "from other machines; needs API keys"
    yield f"API: http://{server.host}:{server.port}, reachable {reach}"


def _tier(tier: Tier) -> str:
    said = [f"counts as {name} after {span(after)}" for name, after in tier.promote.items()]
    said.append(f"{tier.max_retries} retries, {span(tier.timeout)} per attempt")
    if tier.pending:
        said.append(f"at most {tier.pending} jobs per user queued or running")
    if tier.per_hour:
        said.append(f"at most {tier.per_hour} jobs per user and hour")
    if tier.max_duration:
        said.append(f"durations up to {span(tier.max_duration)}")
    if tier.max_running_per_user:
        said.append(f"at most {tier.max_running_per_user} jobs per user running")
    if tier.target:
        said.append(f"should wait no longer than {span(tier.target)}")
    return "; ".join(said)


REJECTED = {
    OnFail.RETRY: "a rejected output costs an attempt",
    OnFail.FAIL: "a rejected output fails the job",
    OnFail.MARK: "a rejected output is only noted",
}


def _quality_check(check: QualityCheck) -> str:
    return f"{check.service} checks its output, {REJECTED[check.on_fail]}"


def _service(settings: Settings, service: Service) -> str:
    said = [_runner(settings, service)]
    said.append(_together(service.limit, service.rate) or "no limit")
    said += [
        f"{region.name}: {_together(region.limit, 0) or 'no limit'}"
        for region in service.regions.values()
    ]
    if service.provider is not None:
        said.append(f"within the limits of {service.provider}")
    if service.timeout:
        said.append(f"{span(service.timeout)} per attempt")
    if service.max_attempts:
        said.append(f"{service.max_attempts} attempts")
    if service.max_wait:
        said.append(f"a job waits at most {span(service.max_wait)}")
    if service.waiting:
        said.append(f"at most {service.waiting:,} jobs wait for it, fewer of lower tiers")
    if service.quality_check is not None:
        said.append(_quality_check(service.quality_check))
    said.append(_shared(service))
    if service.paused:
        said.append("paused")
    return "; ".join(said)


def _runner(settings: Settings, service: Service) -> str:
    if service.executor is Executor.HTTP:
        endpoint = settings.endpoints[service.name]
        urls = [endpoint.url, *endpoint.regions.values()]
        called = f"called at {', '.join(url for url in urls if url)}"
        if endpoint.cancel_path:
            called += f", cut-off calls are cancelled at {endpoint.cancel_path}"
        return called
    if settings.celery_bridge is not None and service.name in settings.celery_bridge.tasks:
        task = settings.celery_bridge.tasks[service.name]
        return f"run by Celery workers of the queue {task.queue} as {task.name}"
    return {
        Executor.PULL: "run by pull workers",
        Executor.CELERY: "run by Celery workers",
        Executor.CALLER: "run by the caller itself",
    }[service.executor]


def _shared(service: Service) -> str:
    by_user = service.fairness is Fairness.USER
    return "shared fairly between users" if by_user else "first come, first served inside a tier"


def _together(limit: int, rate: int) -> str:
    said = [f"at most {limit} at once"] if limit else []
    return " and ".join([*said, f"at most {rate} started per minute"] if rate else said)


def _queue(catalog: Catalog) -> Iterator[str]:
    limits = catalog.limits
    yield (
        f"Queue: at most {limits.waiting:,} jobs wait, fewer of lower tiers; finished jobs are "
        f"kept for {span(limits.keep_finished)}, dead letters for {span(limits.keep_dead)}"
    )


def _skips(prices: CreditSettings) -> str:
    said = [f"{price} up to {span(longest)}" for longest, price in prices.skip_prices]
    said.append(f"{prices.longer_skip_price} {'for longer jobs' if said else 'for every job'}")
    return f"{', '.join(said)}, in {prices.currency}"


def span(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"
