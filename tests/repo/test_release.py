"""The version is the same in each place, and the changelog knows every release."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import fairlane
from tests.repo.checkout import ROOT, kept_files

HEADING = re.compile(r"^## (?:\[?(\d+\.\d+\.\d+)\]?.*|Unreleased)$", re.MULTILINE)


def test_the_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert fairlane.__version__ == project["version"]


def test_every_tag_has_a_section_in_the_changelog() -> None:
    assert kept_files()  # skips without git
    git = shutil.which("git")
    assert git is not None
    command = [git, "-c", f"safe.directory={ROOT}", "tag", "--list", "v*"]
    tags = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    listed = {match[1] for match in HEADING.finditer((ROOT / "CHANGELOG.md").read_text("utf-8"))}
    assert {tag.removeprefix("v") for tag in tags.split()} <= listed


def test_the_changelog_begins_with_what_is_not_released() -> None:
    first = HEADING.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert first is not None
    assert first[0] == "## Unreleased"
