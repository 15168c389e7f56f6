"""The checkout these tests are about."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


def kept_files() -> list[Path]:
    """What git tracks, or would after `git add .`; skips the test where there is no git."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout")
    listed = subprocess.run(
        [git, "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    paths = (ROOT / name for name in sorted(set(listed.stdout.split("\0"))) if name)
    return [path for path in paths if path.is_file()]
