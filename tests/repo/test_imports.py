"""Dependencies point down, and what should be pure is."""

import subprocess
import sys
from pathlib import Path

from tests.repo.checkout import ROOT


def test_imports_keep_the_contracts_in_pyproject() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    checked = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, check=False, capture_output=True, encoding="utf-8"
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
