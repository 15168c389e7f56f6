"""Serialisation of a catalog: the same text for the same settings, and the same settings from
it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from fairlane.model.catalog import Catalog, Limits
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
    parts = {
        "tiers": catalog.tiers.all,
        "default": catalog.tiers.default,
        "services": list(catalog.services.values()),
        "providers": list(catalog.providers.values()),
        "pipelines": catalog.pipelines,
        "limits": _limits(catalog.limits),
        "task_defaults": default,
    }
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
    )


ADDED_LIMITS = ("lowest_tier_share", "users_per_key")
"""Limits that older versions cannot read."""


def _limits(limits: Limits) -> dict[str, Any]:
    """All limits, without those of `ADDED_LIMITS` that have their default: processes of an older
    version read this text during a rolling upgrade."""
    default = Limits()
    unset = {name for name in ADDED_LIMITS if getattr(limits, name) == getattr(default, name)}
    return {name: value for name, value in asdict(limits).items() if name not in unset}


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
