"""`make lint` checks the types of the dashboard and runs its unit tests, where Node.js is."""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.repo.checkout import ROOT

FRONTEND = ROOT / "frontend"


def main() -> int:
    npm = shutil.which("npm")
    if npm is None or not (FRONTEND / "node_modules" / "typescript").is_dir():
        print("the dashboard is not checked: no Node.js here, or its packages are not installed")
        return 0
    steps = ([npm, "run", "--silent", step] for step in ("check", "test"))
    return max(subprocess.call(step, cwd=FRONTEND) for step in steps)


if __name__ == "__main__":
    sys.exit(main())
