"""What an installation gets: the built dashboard, or everything else and one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, kept_files

WHEEL_SECONDS = 300


def wheel(source: Path, target: Path, **environment: str) -> tuple[list[str], str]:
    """Builds a wheel as pip does. Returns the names in it, and what the build said."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "-w", str(target), str(source)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WHEEL_SECONDS,
        check=False,
    )
    text = said.stdout + said.stderr
    if said.returncode != 0 and "hatchling" in text and "No matching distribution" in text:
        pytest.skip("no package index here: a wheel cannot be built")
    assert said.returncode == 0, text
    built = next(target.glob("*.whl"))
    return zipfile.ZipFile(built).namelist(), text


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What git keeps, without anything built."""
    for path in kept_files():
        copy = tmp_path / "checkout" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    return tmp_path / "checkout"


@pytest.mark.timeout(WHEEL_SECONDS)
def test_the_wheel_contains_the_dashboard(checkout: Path, tmp_path: Path) -> None:
    names, said = wheel(checkout, tmp_path / "wheels")
    if (checkout / "frontend" / ".not-built").exists():
        pytest.skip(f"npm cannot build here: {said.partition('not built')[2][:200]}")
    inside = {name.removeprefix("fairlane/dashboard/dist/") for name in names}
    assert "index.html" in inside
    assert {Path(name).suffix for name in inside if name.startswith("assets/")} == {
        ".js",
        ".css",
        ".svg",
    }
    assert not [name for name in names if "node_modules" in name]


@pytest.mark.timeout(WHEEL_SECONDS)
def test_where_npm_fails_the_wheel_is_built_without_it_and_says_so(
    checkout: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("node", "echo v22.0.0"), ("npm", "echo npm error network >&2; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    names, said = wheel(checkout, tmp_path / "wheels", PATH=path)
    assert "fairlane/cli/serve.py" in names
    assert not [name for name in names if "dashboard/dist" in name]
    assert "fairlane: dashboard not built: npm network. Everything else works." in said
