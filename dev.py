#!/usr/bin/env python3
"""Everything a developer runs, from a bare checkout. Needs Python 3.11 or newer, nothing else.

The first command makes .venv beside this file and installs Fairlane and its tools there. Later
ones start at once: only a changed pyproject.toml or constraints.txt is installed again, and the
dashboard is built again when frontend/ has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OLDEST_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / ".installed"
RECIPE = (ROOT / "pyproject.toml", ROOT / "constraints.txt", ROOT / "hatch_build.py")
FRONTEND = ROOT / "frontend"
DASHBOARD = ROOT / "src" / "fairlane" / "dashboard" / "dist" / "index.html"

LINT = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    ("vulture",),
    ("python", "-m", "tests.repo.long_files"),
    ("python", "-m", "tests.browser.typescript"),
)
TEST = ("python", "-m", "tests")

# name → what it is for, the programs of .venv it runs. Further arguments go to the last of them.
COMMANDS: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "run": (
        "watch Fairlane work: a demo in this terminal",
        (("python", "-m", "fairlane", "demo"),),
    ),
    "test": ("run the tests; further arguments go to pytest", (TEST,)),
    "lint": ("style, types, import rules, dead code", LINT),
    "bench": ("measure Fairlane on this machine", (("python", "-m", "fairlane", "bench"),)),
    "cluster": (
        "tests that kill, stop and flush a cluster",
        (("python", "-m", "tests.cluster"),),
    ),
    "versions": (
        "the stores on other versions of PostgreSQL, Redis and PgBouncer",
        (("python", "-m", "tests.versions"),),
    ),
    "chaos": (
        "a cluster under load and random faults, and its verdict",
        (("python", "-m", "tests.chaos"),),
    ),
    "soak": (
        "constant load for a long time; the verdict says what grew",
        (("python", "-m", "tests.soak"),),
    ),
    "celery": (
        "tests with Celery workers; `versions` for 5.5 to 5.7",
        (("python", "-m", "tests.celery"),),
    ),
    "deploy": (
        "validate the deployment files with the tools of their formats",
        (("python", "-m", "tests.deploy"),),
    ),
    "docs": (
        "build the documentation site; `test` runs the blocks of its pages",
        (("python", "-m", "tests.docs"),),
    ),
    "browser": (
        "open the pages in a real Chromium, if there is one",
        (("python", "-m", "pytest", "-q", "-m", "not long", "tests/browser"),),
    ),
    "mutants": ("plant faults; a test must notice each", (("python", "-m", "tests.mutants"),)),
    "check": ("lint, then test", (*LINT, TEST)),
    "setup": ("only make .venv ready", ()),
}


class SetupError(Exception):
    """Set-up cannot go on; the message tells what to do about it."""


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("help", "-h", "--help"):
        print(usage())
        return 0
    name, further = argv[0], argv[1:]
    if name not in COMMANDS:
        raise SetupError(f'unknown command "{name}"; known: {", ".join(COMMANDS)}')
    check_version()
    if name == "setup" and not DASHBOARD.exists():
        forget_dashboard()  # it could not be built before: try again
    install()
    return run_all(COMMANDS[name][1], further)


def usage() -> str:
    lines = [f"  {name:<9}{purpose}" for name, (purpose, _) in COMMANDS.items()]
    return "\n".join(["usage: python3 dev.py COMMAND [ARGUMENTS]", "", *lines, "", __doc__.strip()])


def check_version() -> None:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if sys.version_info[:2] < OLDEST_PYTHON:
        here = ".".join(map(str, sys.version_info[:3]))
        newer = [f"python3.{minor}" for minor in range(20, OLDEST_PYTHON[1] - 1, -1)]
        found = next(filter(shutil.which, newer), f"python{oldest}")
        raise SetupError(
            f"Fairlane needs Python {oldest} or newer, and this is {here}. "
            f"Run it with a newer one: {found} dev.py …"
        )


# ── the environment ───────────────────────────────────────────────────────────────────────────


def install() -> None:
    """Afterwards .venv holds what pyproject.toml and constraints.txt ask for."""
    if read_stamp() == wanted_stamp():
        return
    with one_at_a_time():
        found, wanted = read_stamp(), wanted_stamp()
        if found == wanted:  # another dev.py has just done it
            return
        # The stamp goes first and comes back last: an install cut short leaves none, and an
        # environment without one, or one made for another folder, is made anew.
        STAMP.unlink(missing_ok=True)
        if found[:1] != wanted[:1]:
            create_venv()
        if found[:2] != wanted[:2]:
            say("installing Fairlane and its tools (the first time takes a while)")
            install_packages("--constraint", "constraints.txt", "--editable", ".[dev,docs]")
        else:
            say("building the dashboard")
            install_packages("--no-deps", "--editable", ".")
        if not DASHBOARD.exists():
            say(f"the dashboard is not built: {reason_not_built()}. Everything else works.")
        unfinished = STAMP.with_suffix(".part")
        unfinished.write_text("\n".join(wanted), encoding="utf-8")
        unfinished.replace(STAMP)


def wanted_stamp() -> list[str]:
    return [str(ROOT), digest(RECIPE), digest(sorted(dashboard_sources()))]


def forget_dashboard() -> None:
    if kept := read_stamp()[:2]:
        STAMP.write_text("\n".join(kept), encoding="utf-8")


def dashboard_sources() -> Iterator[Path]:
    for entry in FRONTEND.iterdir() if FRONTEND.is_dir() else ():
        if entry.is_dir() and entry.name != "node_modules":
            yield from (path for path in entry.rglob("*") if path.is_file())
        elif entry.is_file() and entry.name != ".not-built":
            yield entry


def digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def reason_not_built() -> str:
    try:
        return (FRONTEND / ".not-built").read_text(encoding="utf-8").strip()
    except OSError:
        return "it was skipped"


def read_stamp() -> list[str]:
    if not program("python").exists():  # also when the Python it was made from has gone
        return []
    try:
        return STAMP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def create_venv() -> None:
    check_modules()
    import venv

    version = ".".join(map(str, sys.version_info[:3]))
    say(f"making {VENV.name} with Python {version}")
    try:
        venv.create(VENV, clear=True, with_pip=True, symlinks=os.name != "nt")
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"could not make {VENV}: {error}") from error


def check_modules() -> None:
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise SetupError(
                f'this Python has no "{module}" module, so it cannot make a virtual environment. '
                "On Debian and Ubuntu: apt-get install python3-venv"
            )


def install_packages(*packages: str) -> None:
    """With uv when it can be had (seconds), else with pip (a minute)."""
    python = str(program("python"))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    if call([*pip, "uv"]) == 0 and call([*uv, *packages]) == 0:
        return
    say("uv did not manage; trying plain pip")
    if call([*pip, *packages]) != 0:
        raise SetupError("the packages could not be installed; what pip said is above")


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """`make -j test lint` in a fresh checkout must not install twice into one folder."""
    try:
        import fcntl
    except ImportError:  # Windows: nobody runs make -j there
        yield
        return
    with Path(__file__).open("rb") as lock:
        with contextlib.suppress(OSError):  # some network folders cannot lock
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ── running things in it ──────────────────────────────────────────────────────────────────────


def run_all(steps: tuple[tuple[str, ...], ...], further: list[str]) -> int:
    """Runs every step, also after one failed: a reader wants all the bad news at once."""
    if further and not steps:
        raise SetupError(f"takes no arguments: {' '.join(further)}")
    if len(steps) == 1:
        return become([*located(steps[0]), *further])
    failed = []
    for step in steps:
        shown = " ".join(step)
        say(shown)
        arguments = further if step is steps[-1] else []
        if call([*located(step), *arguments]) != 0:
            failed.append(shown)
    if failed:
        say(f"failed: {'; '.join(failed)}")
    return 1 if failed else 0


def located(step: tuple[str, ...]) -> list[str]:
    return [str(program(step[0])), *step[1:]]


def program(name: str) -> Path:
    return BIN / (f"{name}.exe" if os.name == "nt" else name)


def become(command: list[str]) -> int:
    """Hands this process over, so that signals and the exit code are the program's own."""
    if os.name != "nt":
        os.chdir(ROOT)
        os.execve(command[0], command, environment())  # noqa: S606
    return call(command)


def call(command: list[str]) -> int:
    """Ctrl-C reaches the command as well: it ends in its own way, and we after it."""
    with subprocess.Popen(command, cwd=ROOT, env=environment()) as process:
        interrupted = False
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                interrupted = True
    if interrupted and process.returncode:
        raise KeyboardInterrupt
    return process.returncode


def environment() -> dict[str, str]:
    """The caller's, with .venv active and without what would pull in some other Python."""
    foreign = (
        "PYTHONHOME",
        "PYTHONPATH",
        "PIP_USER",
        "PIP_TARGET",
        "PIP_PREFIX",
        "UV_SYSTEM_PYTHON",
        "PYTHONDONTWRITEBYTECODE",
    )
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    kept["VIRTUAL_ENV"] = str(VENV)
    kept["PYTHONPYCACHEPREFIX"] = str(VENV / "bytecode")  # a process starts in half the time
    kept["PATH"] = os.pathsep.join([str(BIN), kept.get("PATH", os.defpath)])
    kept.setdefault("UV_SYSTEM_CERTS", "1")  # trust what this machine trusts, as pip does
    return kept


def say(text: str) -> None:
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
