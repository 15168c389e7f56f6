"""The settings and the JSON that the pages show are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairlane.config.load import load
from tests.docs.blocks import Block, blocks, name_of, pages

Item = tuple[Path, Block]


def of_language(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{name_of(page)}:{block.line}")
        for page in pages()
        for block in blocks(page)
        if block.language == language and not block.not_run
    ]


@pytest.mark.parametrize("block", of_language("toml"))
def test_every_settings_block_loads(block: Block, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(block.text, "utf-8")
    secrets = dict.fromkeys(re.findall(r"env:(\w+)", block.text), "a secret")
    settings = load(tmp_path / "fairlane.toml", environment=secrets)
    assert settings.catalog.tiers.names


@pytest.mark.parametrize("block", of_language("json"))
def test_every_json_block_is_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        for line in block.text.splitlines():  # one object a line
            json.loads(line)
