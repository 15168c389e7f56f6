"""Live changes of limits. The ledger first: from its commit on no claim can go beyond; then the
index, so that none tries."""

from __future__ import annotations

from dataclasses import replace

from fairlane.engine.core import Core
from fairlane.errors import InvalidInput, UnknownName
from fairlane.model.catalog import Catalog
from fairlane.model.job import Json
from fairlane.model.service import Pool

CHANGEABLE = ("limit", "rate", "paused")


async def change(core: Core, kind: str, name: str, setting: str, value: Json, actor: str) -> None:
    """Set one setting of a service or provider, from now on and through restarts."""
    current = _current(core.catalog, kind, name, setting)
    if isinstance(value, bool) != isinstance(current, bool) or not isinstance(value, int):
        raise InvalidInput(f"{kind}.{name}.{setting} takes a {type(current).__name__}")
    if value < 0:
        raise InvalidInput(f"{kind}.{name}.{setting} cannot be below 0")
    path = f"{kind}.{name}.{setting}"
    await core.ledger.setting(path, value, current, core.now(), actor)
    await adopt(core, changed(core.catalog, kind, name, setting, value))


async def adopt(core: Core, catalog: Catalog) -> None:
    """These settings hold from now on, in the ledger and then in the index."""
    before, after = core.catalog.all_pools(), catalog.all_pools()
    for pool in {**before, **after}.values():
        wanted = after.get(pool.name, Pool(pool.name, 0))
        services, region = _members(catalog, pool.name)
        await core.ledger.set_pool(pool.name, wanted.limit, services, region)
    core.adopt(catalog)
    await core.index.configure(catalog)
    for name in after:
        rows = [(row.slot, row.token) for row in await core.ledger.slots(name)]
        await core.index.sync_slots(name, rows, core.now())


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
    catalog = core.catalog
    for path, (value, file_value) in (await core.ledger.settings()).items():
        kind, name, setting = path.split(".")
        known = catalog.services if kind == "services" else catalog.providers
        if name in known and _current(catalog, kind, name, setting) == file_value:
            catalog = changed(catalog, kind, name, setting, value)
    return catalog


def _current(catalog: Catalog, kind: str, name: str, setting: str) -> Json:
    if setting not in CHANGEABLE or (kind == "providers" and setting == "paused"):
        raise UnknownName("live setting", setting, CHANGEABLE)
    if kind == "services":
        return getattr(catalog.service(name), setting)
    if name not in catalog.providers:
        raise UnknownName("provider", name, catalog.providers)
    return getattr(catalog.providers[name], setting)


def _members(catalog: Catalog, pool: str) -> tuple[list[str], str | None]:
    """Whose running jobs a pool counts: (services, region)."""
    kind, _, name = pool.partition(":")
    if kind == "svc":
        service, _, region = name.partition("@")
        return [service], region or None
    if kind == "prov":
        return [each.name for each in catalog.services.values() if each.provider == name], None
    return [], None
