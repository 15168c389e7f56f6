"""What a user installs: the built wheel in an empty environment, without a checkout beside it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600
DEMO = ("demo", "--seconds", "5", "--speed", "200", "--port", "0")
SERVER_PARTS = ("fastapi", "uvicorn", "sqlite3", "fairlane.api", "fairlane.engine")
CLIENT = f"""
import sys
from fairlane import Client
print([name for name in {SERVER_PARTS!r} if name in sys.modules])
"""

Outcome = tuple[str, str | None]
"""What was tried, and what went wrong or None."""


class WheelError(Exception):
    """A command failed; the message is what it printed."""


def try_wheel() -> Iterator[Outcome]:
    """Builds the wheel and uses it as a stranger would. Stops at the first failure."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = folder / "empty" / "bin"
        name = ""
        try:
            for name, step in (
                ("wheel: build", lambda: build(folder)),
                ("wheel: pip install into an empty environment", lambda: install(folder)),
                ("wheel: fairlane --help", lambda: run(folder, program / "fairlane", "--help")),
                ("wheel: the client loads no server", lambda: check_client(folder)),
                ("wheel: the version is the one of the project", lambda: check_version(folder)),
                ("wheel: fairlane demo", lambda: check_demo(folder, program / "fairlane", *DEMO)),
                uvx_step(folder),
            ):
                step()
                yield name, None
        except WheelError as error:
            yield name, str(error)


def run(folder: Path, *command: str | Path) -> str:
    ran = subprocess.run(
        [str(each) for each in command], cwd=folder, capture_output=True, text=True, check=False,
        timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if ran.returncode != 0:
        raise WheelError(ran.stdout + ran.stderr)
    return ran.stdout


def build(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    run(ROOT, *pip, ".")


def wheel(folder: Path) -> Path:
    return next(folder.glob("fairlane-*.whl"))


def install(folder: Path) -> None:
    venv.create(folder / "empty", with_pip=True)
    pip = [str(folder / "empty" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    run(folder, *pip, "--constraint", ROOT / "constraints.txt", wheel(folder))


def check_client(folder: Path) -> None:
    loaded = run(folder, folder / "empty" / "bin" / "python", "-c", CLIENT).strip()
    if loaded != "[]":
        raise WheelError(f"`from fairlane import Client` loads {loaded}")


def check_version(folder: Path) -> None:
    said = run(folder, folder / "empty" / "bin" / "fairlane", "--version").split()
    if wheel(folder).name.split("-")[1] not in said:
        raise WheelError(f"fairlane --version says {said}")


def check_demo(folder: Path, *command: str | Path) -> None:
    said = run(folder, *command)
    if " 0 lost" not in said or "the ledger is sound" not in said:
        raise WheelError(said)


def uvx_step(folder: Path) -> tuple[str, Callable[[], object]]:
    """With the uv of the checkout's environment, which dev.py installs if it can be had."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        return "wheel: uvx is left out: there is no uv here", lambda: None
    uvx = (uv, "tool", "run", "--from")
    return "wheel: uvx fairlane demo", lambda: check_demo(
        folder, *uvx, wheel(folder), "fairlane", *DEMO
    )
