"""Serialisation of a catalog: the same text for the same settings, and the same settings from
it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson

from fairlane.model.catalog import Catalog, Limits
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

ADDED_LATER: dict[str, object] = {"quality_check": None}
"""Settings of a service that older versions do not know, with their defaults. They are written only
if they are set, so that a process of an older version can read the text."""


def catalog_text(catalog: Catalog) -> str:
    default = catalog.task_defaults
    parts = {
        "tiers": catalog.tiers.all,
        "default": catalog.tiers.default,
        "services": [_stored(service) for service in catalog.services.values()],
        "providers": list(catalog.providers.values()),
        "pipelines": catalog.pipelines,
        "limits": catalog.limits,
        "task_defaults": None if default is None else _stored(default),
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


def _stored(service: Service) -> dict[str, Any]:
    values = {each.name: getattr(service, each.name) for each in fields(service)}
    for name, default in ADDED_LATER.items():
        if values[name] == default:
            del values[name]
    return values


def _service(values: dict[str, Any]) -> Service:
    overrun, check = values["overrun"], values.get("quality_check")
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
