"""Every setting of fairlane.toml is documented, with its default and a meaning."""

from __future__ import annotations

import tomllib

import pytest
from pydantic import BaseModel

from fairlane.config import file_schema
from fairlane.config.file_schema import File
from tests.docs.blocks import blocks
from tests.repo.tables import DOCS, section, table

PAGE = DOCS / "reference" / "configuration.md"
SECTIONS: dict[str, type[BaseModel]] = {
    "server": file_schema.ServerTable,
    "tiers": file_schema.TiersTable,
    "tiers.NAME": file_schema.TierTable,
    "services.NAME": file_schema.ServiceTable,
    "services.NAME.quality_check": file_schema.QualityCheckTable,
    "services.NAME.regions.NAME": file_schema.RegionTable,
    "providers.NAME": file_schema.ProviderTable,
    "limits": file_schema.LimitsTable,
    "credits": file_schema.CreditsTable,
    "priority": file_schema.PriorityTable,
    "callbacks": file_schema.CallbacksTable,
    "celery": file_schema.CeleryTable,
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_setting_of_the_file_is_documented_with_its_default(heading: str) -> None:
    rows = table(PAGE, heading)
    assert {row["setting"]: row["default"] for row in rows} == {
        name: shown(field.default) for name, field in SECTIONS[heading].model_fields.items()
    }
    assert all(row["meaning"] for row in rows)


def test_every_section_is_documented() -> None:
    assert all(section(PAGE, name) for name in ("pipelines", "tasks"))
    documented = {heading.partition(".")[0] for heading in SECTIONS} | {"pipelines", "tasks"}
    assert documented == set(File.model_fields)


def test_the_example_is_toml() -> None:
    (example,) = [block for block in blocks(PAGE) if block.language == "toml"]
    assert set(tomllib.loads(example.text)) <= set(File.model_fields)


def shown(default: object) -> str:
    return repr(default.model_dump() if isinstance(default, BaseModel) else default)
