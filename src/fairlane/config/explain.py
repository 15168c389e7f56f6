"""Explains the settings in plain words, for `fairlane check`."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.config.settings import ServerSettings, Settings
from fairlane.model.catalog import Catalog
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
    if settings.priority is not None:
        yield (
            f"Tiers of users are asked for at {settings.priority.url}; a user whose tier it has "
            f"never named gets {settings.priority.fallback}"
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
    reach = "only from this machine" if server.loopback else "from elsewhere, so keys are needed"
    yield f"API: http://{server.host}:{server.port}, reached {reach}"


def _tier(tier: Tier) -> str:
    said = [f"counts as {name} after {span(after)}" for name, after in tier.promote.items()]
    said.append(f"{tier.max_retries} retries, {span(tier.timeout)} a try")
    if tier.pending:
        said.append(f"at most {tier.pending} jobs of a user queued or running")
    if tier.per_hour:
        said.append(f"at most {tier.per_hour} jobs of a user an hour")
    if tier.max_duration:
        said.append(f"durations up to {span(tier.max_duration)}")
    if tier.max_running_per_user:
        said.append(f"at most {tier.max_running_per_user} of a user running")
    return "; ".join(said)


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
        said.append(f"{span(service.timeout)} a try")
    if service.max_attempts:
        said.append(f"{service.max_attempts} tries")
    if service.max_wait:
        said.append(f"waits {span(service.max_wait)} at the longest")
    if service.waiting:
        said.append(f"at most {service.waiting:,} jobs wait for it, fewer of lower tiers")
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
            called += f", asked at {endpoint.cancel_path} to end calls that were cut off"
        return called
    return {
        Executor.PULL: "run by workers that pull",
        Executor.CELERY: "run by a Celery fleet",
        Executor.CALLER: "run by the caller itself",
    }[service.executor]


def _shared(service: Service) -> str:
    by_user = service.fairness is Fairness.USER
    return "users of a tier share it" if by_user else "first come, first served inside a tier"


def _together(limit: int, rate: int) -> str:
    said = [f"at most {limit} at once"] if limit else []
    return " and ".join([*said, f"at most {rate} started a minute"] if rate else said)


def _queue(catalog: Catalog) -> Iterator[str]:
    limits = catalog.limits
    yield (
        f"Queue: at most {limits.waiting:,} jobs wait, fewer of lower tiers; finished ones are "
        f"kept {span(limits.keep_finished)}, dead letters {span(limits.keep_dead)}"
    )


def span(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"
