"""Workers of the SDK, both ways of talking, over a file and over a cluster."""

from __future__ import annotations

from tests.dispatch.conftest import _stores as _stores  # noqa: PLC0414 - used by its name
from tests.dispatch.conftest import (
    pytest_generate_tests as pytest_generate_tests,  # noqa: PLC0414 - used by its name
)
