"""The stored text of the settings: new settings are written only where they differ from their
default, so that a process of the version before reads the same text."""

from __future__ import annotations

import orjson
import pytest

from fairlane.model.catalog import Catalog
from fairlane.model.catalog_text import catalog_of, catalog_text
from fairlane.model.credits import CreditSettings
from fairlane.presets import PRESETS
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
