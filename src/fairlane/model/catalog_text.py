"""Serialisation of a catalog: the same text for the same settings, and the same settings from
it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.credits import CreditSettings
from fairlane.model.quality_check import OnFail, QualityCheck
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

ADDED_LATER = frozenset(
    {"cleanup_interval", "lowest_tier_share", "model_load", "quality_check", "users_per_key"}
)
"""Settings that older versions cannot read. They are left out while they have their defaults:
processes of both versions read the text during a rolling upgrade."""

DEFAULT_SERVICE = Service("any")


def catalog_text(catalog: Catalog) -> str:
    default = catalog.task_defaults
    parts: dict[str, Any] = {
        "tiers": [_without_target(tier) for tier in catalog.tiers.all],
        "default": catalog.tiers.default,
        "services": [_stored(service, DEFAULT_SERVICE) for service in catalog.services.values()],
        "providers": list(catalog.providers.values()),
        "pipelines": catalog.pipelines,
        "limits": _stored(catalog.limits, Limits()),
        "task_defaults": None if default is None else _stored(default, DEFAULT_SERVICE),
    }
    if catalog.credits != CreditSettings():  # else the text is that of older versions
        parts["credits"] = catalog.credits
    targets = {tier.name: tier.target for tier in catalog.tiers.all if tier.target}
    if targets:
        parts["targets"] = targets  # apart from the tiers: older versions do not read it
    orders = {each.name: [*each.regions] for each in catalog.services.values()}
    orders = {name: regions for name, regions in orders.items() if regions != sorted(regions)}
    if orders:
        parts["region_orders"] = orders  # apart from the services, whose regions are sorted by name
    return _dumps(parts)


def catalog_of(text: str) -> Catalog:
    parts = orjson.loads(text)
    default, targets = parts["task_defaults"], parts.get("targets", {})
    orders = parts.get("region_orders", {})
    tiers = [Tier(**tier, target=targets.get(tier["name"], 0)) for tier in parts["tiers"]]
    return Catalog(
        Tiers(tiers, parts["default"]),
        [_service(service, orders.get(service["name"])) for service in parts["services"]],
        [Provider(**provider) for provider in parts["providers"]],
        {name: tuple(steps) for name, steps in parts["pipelines"].items()},
        Limits(**parts["limits"]),
        _service(default) if default is not None else None,
        _credits(parts.get("credits", {})),
    )


def _credits(values: dict[str, Any]) -> CreditSettings:
    """Texts of older versions, and of the default prices, have no credits."""
    if "skip_prices" in values:
        values = values | {"skip_prices": tuple(map(tuple, values["skip_prices"]))}
    return CreditSettings(**values)


def _without_target(tier: Tier) -> orjson.Fragment:
    """The tier as older versions write it."""
    values = {each.name: getattr(tier, each.name) for each in fields(tier) if each.name != "target"}
    written = (f'"{name}":{_dumps(value)}' for name, value in values.items())
    return orjson.Fragment(f"{{{','.join(written)}}}")


def _stored(item: Service | Limits, default: Service | Limits) -> orjson.Fragment:
    """As orjson writes a dataclass, in the order of its fields, which is the text of older
    versions."""
    values = {field.name: getattr(item, field.name) for field in fields(item)}
    written = (
        f'"{name}":{_dumps(value)}'
        for name, value in values.items()
        if name not in ADDED_LATER or value != getattr(default, name)
    )
    return orjson.Fragment(f"{{{','.join(written)}}}")


def _dumps(value: object) -> str:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS).decode()


def _service(values: dict[str, Any], region_order: list[str] | None = None) -> Service:
    overrun, check = values["overrun"], values.get("quality_check")
    regions = values["regions"]
    return Service(
        **values
        | {
            "executor": Executor(values["executor"]),
            "regions": {name: Region(**regions[name]) for name in region_order or regions},
            "backoff": tuple(values["backoff"]),
            "retry_place": RetryPlace(values["retry_place"]),
            "overrun": Overrun(overrun) if overrun is not None else None,
            "affinity": Affinity(values["affinity"]),
            "fairness": Fairness(values["fairness"]),
            "shares": Shares(*values["shares"]),
            "capabilities": frozenset(values["capabilities"]),
            "quality_check": None if check is None else QualityCheck(check[0], OnFail(check[1])),
        }
    )


def _plain(value: object) -> list[Any]:
    """The encoding of types that JSON does not have."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(type(value).__name__)
