"""Serialisation of a catalog: the same text for the same settings, and the same settings from
it."""

from __future__ import annotations

from typing import Any

import orjson

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.credits import CreditSettings
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


def catalog_text(catalog: Catalog) -> str:
    default = catalog.task_defaults
    parts: dict[str, Any] = {
        "tiers": catalog.tiers.all,
        "default": catalog.tiers.default,
        "services": list(catalog.services.values()),
        "providers": list(catalog.providers.values()),
        "pipelines": catalog.pipelines,
        "limits": catalog.limits,
        "task_defaults": default,
    }
    if catalog.credits != CreditSettings():  # else the text is that of older versions
        parts["credits"] = catalog.credits
    return orjson.dumps(parts, default=_plain, option=orjson.OPT_SORT_KEYS).decode()


def catalog_of(text: str) -> Catalog:
    parts = orjson.loads(text)
    default = parts["task_defaults"]
    return Catalog(
        Tiers([Tier(**tier) for tier in parts["tiers"]], parts["default"]),
        [_service(service) for service in parts["services"]],
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


def _service(values: dict[str, Any]) -> Service:
    overrun = values["overrun"]
    return Service(
        **values
        | {
            "executor": Executor(values["executor"]),
            "regions": {name: Region(**each) for name, each in values["regions"].items()},
            "backoff": tuple(values["backoff"]),
            "retry_place": RetryPlace(values["retry_place"]),
            "overrun": Overrun(overrun) if overrun is not None else None,
            "affinity": Affinity(values["affinity"]),
            "fairness": Fairness(values["fairness"]),
            "shares": Shares(*values["shares"]),
            "capabilities": frozenset(values["capabilities"]),
        }
    )


def _plain(value: object) -> list[Any]:
    """The encoding of types that JSON does not have."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(type(value).__name__)
