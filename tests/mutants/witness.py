"""A pytest plug-in that says whose source is under test: without it, every mutant of a wrongly
installed Fairlane would seem to survive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fairlane

SOURCE = "FAIRLANE_SOURCE_UNDER_TEST"


def pytest_configure() -> None:
    wanted, found = Path(os.environ[SOURCE]), Path(fairlane.__file__).resolve()
    if not found.is_relative_to(wanted.resolve()):
        raise pytest.UsageError(f"the tests would run {found}, not the source in {wanted}")
