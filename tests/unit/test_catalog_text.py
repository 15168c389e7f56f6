"""The stored text of the settings: new settings are written only where they differ from their
default, so that a process of the version before reads the same text."""

from __future__ import annotations

import orjson
import pytest

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.catalog_text import catalog_of, catalog_text
from fairlane.model.credits import CreditSettings
from fairlane.presets import PRESETS, tasks
from tests.world import TIERS

PARTS = {"tiers", "default", "services", "providers", "pipelines", "limits", "task_defaults"}


@pytest.mark.parametrize("name", PRESETS)
def test_default_prices_are_not_written(name: str) -> None:
    text = catalog_text(PRESETS[name]())
    assert set(orjson.loads(text)) == PARTS
    assert catalog_of(text).credits == CreditSettings()
    assert catalog_text(catalog_of(text)) == text


def test_own_prices_are_read_as_they_were_written() -> None:
    own = CreditSettings("gold", ((2.5, 1), (60, 7)), longer_skip_price=20)
    text = catalog_text(Catalog(TIERS, credits=own))
    assert catalog_of(text).credits == own
    assert catalog_text(catalog_of(text)) == text


FIRST_LIMITS = {
    *("waiting", "input_bytes", "result_bytes", "context_bytes", "cells"),
    *("keep_finished", "keep_dead", "keep_keys"),
}


def with_limits(limits: Limits) -> Catalog:
    return Catalog(tasks().tiers, limits=limits, task_defaults=tasks().task_defaults)


def test_limits_that_older_versions_do_not_know_are_written_only_if_they_are_set() -> None:
    written = orjson.loads(catalog_text(with_limits(Limits())))["limits"]
    assert set(written) == FIRST_LIMITS
    changed = orjson.loads(catalog_text(with_limits(Limits(users_per_key=7))))["limits"]
    assert set(changed) == FIRST_LIMITS | {"users_per_key"}


def test_limits_that_an_older_version_wrote_get_the_defaults() -> None:
    parts = orjson.loads(catalog_text(with_limits(Limits(waiting=9))))
    assert catalog_of(orjson.dumps(parts).decode()).limits == Limits(waiting=9)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_the_limits_of_a_preset_are_read_as_they_were_written(preset: object) -> None:
    assert callable(preset)
    catalog = preset()
    assert catalog_of(catalog_text(catalog)).limits == catalog.limits
