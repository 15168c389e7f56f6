"""Live changes of limits. The ledger first: from its commit on no claim can go beyond; then the
index, so that none tries."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fairlane.engine.core import Core
from fairlane.errors import InvalidInput, UnknownName
from fairlane.ledger.shapes import PoolLimit, SettingChange
from fairlane.model.catalog import Catalog
from fairlane.model.job import Json
from fairlane.model.service import Pool

KINDS = {"services": ("limit", "rate", "paused"), "providers": ("limit", "rate")}


async def change(core: Core, kind: str, name: str, setting: str, value: Json, actor: str) -> None:
    """Set one setting of a service or provider, from now on and through restarts."""
    in_file = _current(core.file, kind, name, setting)
    path = f"{kind}/{name}/{setting}"
    if isinstance(value, bool) != isinstance(in_file, bool) or not isinstance(value, int):
        wanted = "true or false" if isinstance(in_file, bool) else "a whole number"
        raise InvalidInput(f"{path} takes {wanted}")
    if value < 0:
        raise InvalidInput(f"{path} cannot be below 0")
    await asyncio.shield(_change(core, kind, name, setting, value, in_file, actor))


async def _change(
    core: Core, kind: str, name: str, setting: str, value: Json, in_file: Json, actor: str
) -> None:
    """One at a time, and never half."""
    path = f"{kind}/{name}/{setting}"
    async with core.changing:
        catalog = changed(core.catalog, kind, name, setting, value)
        await adopt(core, catalog, SettingChange(path, value, in_file, core.now(), actor))


async def adopt(core: Core, catalog: Catalog, change: SettingChange | None = None) -> None:
    """These settings hold from now on, in the ledger and then in the index. Written twice: what was
    granted under the old settings while the new ones became known is counted the second time."""
    limits = [_limit(catalog, pool) for pool in catalog.all_pools().values()]
    await core.ledger.set_pools(limits, change)
    core.adopt(catalog)
    await core.ledger.set_pools(limits, None)
    await core.index.configure(catalog)
    for limit in limits:
        rows = [(row.slot, row.token) for row in await core.ledger.slots(limit.name)]
        await core.index.sync_slots(limit.name, rows, core.now())


def changed(catalog: Catalog, kind: str, name: str, setting: str, value: Json) -> Catalog:
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
    )


async def with_live_settings(core: Core) -> Catalog:
    """The file's settings with the live changes on top, unless the file has changed since."""
    catalog = core.file
    for path, (value, file_value) in (await core.ledger.settings()).items():
        kind, name, setting = path.split("/")
        try:
            unchanged = _current(core.file, kind, name, setting) == file_value
        except UnknownName:
            continue  # no longer configured: nothing to change
        if unchanged:
            catalog = changed(catalog, kind, name, setting, value)
    return catalog


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


def _limit(catalog: Catalog, pool: Pool) -> PoolLimit:
    """A pool's limit, and whose running jobs it counts. A rate counts only what starts."""
    kind, _, name = pool.name.partition(":")
    services: tuple[str, ...] = ()
    region = ""
    if kind == "svc":
        service, _, region = name.partition("@")
        services = (service,)
    elif kind == "prov":
        services = tuple(each.name for each in catalog.services.values() if each.provider == name)
    return PoolLimit(pool.name, pool.limit, services, region or None)
