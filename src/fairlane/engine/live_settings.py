"""Live settings (dynamic configuration): limits that change while the system runs. A change is
written to the ledger first, then to the index."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace

from fairlane.engine.core import Core, sync_pool
from fairlane.engine.services_in_use import ServicesInUse
from fairlane.errors import InvalidInput, NotReady, UnknownName
from fairlane.ledger.messages import PoolLimit, Setting, SettingChange, Stamp, Superseded
from fairlane.model.catalog import Catalog
from fairlane.model.catalog_text import catalog_of, catalog_text
from fairlane.model.job import Json
from fairlane.model.service import Pool, service_of_pool

log = logging.getLogger("fairlane")

SETTINGS_PAGE = 2_000

KINDS = {"services": ("limit", "rate", "waiting", "paused"), "providers": ("limit", "rate")}


async def change(core: Core, kind: str, name: str, setting: str, value: Json, actor: str) -> None:
    """Set one setting of a service or provider, from now on and through restarts."""
    in_file = _current(core.file, kind, name, setting)
    path = f"{kind}/{name}/{setting}"
    if isinstance(value, bool) != isinstance(in_file, bool) or not isinstance(value, int):
        wanted = "true or false" if isinstance(in_file, bool) else "a whole number"
        raise InvalidInput(f"{path} takes {wanted}")
    if value < 0:
        raise InvalidInput(f"{path} cannot be below 0")
    await asyncio.shield(_change(core, path, value, in_file, actor))


async def _change(core: Core, path: str, value: Json, in_file: Json, actor: str) -> None:
    """Make one change at a time, completely. The change is applied to the newest settings (compare
    and swap): other processes may change settings at the same time."""
    async with core.changing:
        while True:
            catalog = changed(core.catalog, path, value)
            change = SettingChange(path, value, in_file, core.now(), actor)
            outcome = await _hold(core, catalog, core.settings, change)
            if isinstance(outcome, Stamp):
                return
            await _follow(core)
            if isinstance(outcome, Superseded):
                return  # written; a later change includes or reverts it


async def start(core: Core) -> None:
    """Use the settings in the ledger if they were made from the same file as this process has.
    Otherwise the file is new: it holds from now on, together with the live changes of settings that
    the new file leaves unchanged."""
    async with core.changing:
        while True:
            known = await core.ledger.settings()
            if known.file == catalog_text(core.file):
                catalog = catalog_of(known.catalog)
            else:
                catalog = with_changes(core.file, known.changes)
                needs = ServicesInUse(catalog)
                async with aclosing(core.ledger.live(SETTINGS_PAGE)) as pages:
                    async for page in pages:
                        needs.check(page)
            if await _hold(core, catalog, known.stamp.settings) is not None:
                return


async def follow(core: Core) -> None:
    """Take over settings that another process has changed."""
    async with core.changing:
        await _follow(core)


async def _follow(core: Core) -> None:
    known = await core.ledger.settings()
    if known.file != catalog_text(core.file):
        log.warning("another process has started with other settings: those hold, not the own ones")
    core.adopt(catalog_of(known.catalog), known.stamp.settings)
    await tell_index(core)


async def _hold(
    core: Core, catalog: Catalog, over: int, change: SettingChange | None = None
) -> Stamp | Superseded | None:
    """Write these settings to the ledger and then to the index. Returns None if another process has
    written settings since version `over`, and Superseded if this change was written and another
    process has written settings after it."""
    texts = catalog_text(catalog), catalog_text(core.file)
    outcome = await core.ledger.set_pools(_limits(catalog), *texts, over, change)
    if isinstance(outcome, Stamp):
        core.adopt(catalog, outcome.settings)
        with suppress(NotReady):  # written; an unreachable index is told by a later `keep_up`
            await tell_index(core)
    return outcome


async def limit_task_types(core: Core, pools: Collection[str]) -> None:
    """Write the limits of those of these pools that are not configured to the ledger. The limits of
    a task type are written at its first claim."""
    catalog, configured = core.catalog, core.catalog.all_pools()
    services = {service_of_pool(pool) for pool in pools if pool not in configured}
    types = sorted(each for each in services if each is not None and catalog.knows(each))
    limits = [_limit(catalog, pool) for each in types for pool in catalog.pools(each, None)]
    if limits:
        await core.ledger.add_pools(limits, list(configured), core.settings)


async def tell_index(core: Core) -> None:
    """Tell the index the settings, and which lease holds which slot."""
    settings = core.settings
    await core.index.configure(core.catalog, settings)
    for pool in core.catalog.all_pools():
        await sync_pool(core, pool)
    core.settings_told = settings


def with_changes(catalog: Catalog, changes: Mapping[str, Setting]) -> Catalog:
    """A file's settings with live changes on top, unless the file has changed since."""
    result = catalog
    for path, change in changes.items():
        try:
            unchanged = _current(catalog, *path.split("/")) == change.file_value
        except UnknownName:
            continue  # no longer configured: nothing to change
        if unchanged:
            result = changed(result, path, change.value)
    return result


def changed(catalog: Catalog, path: str, value: Json) -> Catalog:
    kind, name, setting = path.split("/")
    services, providers = dict(catalog.services), dict(catalog.providers)
    if kind == "services":
        services[name] = replace(catalog.service(name), **{setting: value})
    else:
        providers[name] = replace(providers[name], **{setting: value})
    return Catalog(
        catalog.tiers,
        services.values(),
        providers.values(),
        catalog.pipelines,
        catalog.limits,
        catalog.task_defaults,
        catalog.credits,
    )


def _current(catalog: Catalog, kind: str, name: str, setting: str) -> Json:
    if kind not in KINDS:
        raise UnknownName("kind of live setting", kind, KINDS)
    if setting not in KINDS[kind]:
        raise UnknownName("live setting", setting, KINDS[kind])
    if kind == "services":
        return getattr(catalog.service(name), setting)
    if name not in catalog.providers:
        raise UnknownName("provider", name, catalog.providers)
    return getattr(catalog.providers[name], setting)


def _limits(catalog: Catalog) -> list[PoolLimit]:
    return [_limit(catalog, pool) for pool in catalog.all_pools().values()]


def _limit(catalog: Catalog, pool: Pool) -> PoolLimit:
    """A pool's limit, and the services and region whose running jobs it counts. A rate limit counts
    only starts."""
    kind, _, name = pool.name.partition(":")
    services: tuple[str, ...] = ()
    region = ""
    if kind == "svc":
        service, _, region = name.partition("@")
        services = (service,)
    elif kind == "prov":
        services = tuple(each.name for each in catalog.services.values() if each.provider == name)
    return PoolLimit(pool.name, pool.limit, services, region or None)
