"""`fairlane init` writes a settings file, `fairlane check` explains the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from fairlane.config.explain import explain
from fairlane.config.load import load, preset_names, preset_text
from fairlane.config.setting_errors import BadSettings, suggestion
from fairlane.config.settings import Settings

BAD_SETTINGS = 78
"""Exit code EX_CONFIG of sysexits.h."""


def init(preset: str, path: Path) -> None:
    known_preset(preset)
    if path.exists():
        typer.echo(f"{path} exists already; remove it first, or name another file", err=True)
        raise typer.Exit(1)
    try:
        path.write_text(preset_text(preset), "utf-8")
    except OSError as error:
        typer.echo(f"cannot write {path}: {error.strerror}; name another file", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {path}; to see what it means: fairlane check {path}")


def check(path: Path | None, preset: str) -> None:
    for line in explain(settings(path, preset=preset)):
        typer.echo(line)


def settings(
    path: Path | None, *, preset: str = "tasks", flags: Mapping[tuple[str, ...], Any] | None = None
) -> Settings:
    """The settings of this process. With mistakes, it prints every one and exits with 78."""
    known_preset(preset)
    try:
        return load(path, preset=preset, environment=os.environ, flags=flags)
    except BadSettings as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(BAD_SETTINGS) from None


def known_preset(name: str) -> None:
    if name not in preset_names():
        typer.echo(f'unknown preset "{name}"{suggestion(name, preset_names())}', err=True)
        raise typer.Exit(BAD_SETTINGS)
