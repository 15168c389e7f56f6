"""`fairlane init` writes settings to start from, `fairlane check` explains what there is."""

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
"""What sysexits.h calls EX_CONFIG."""


def init(preset: str, path: Path) -> None:
    known_preset(preset)
    if path.exists():
        typer.echo(f"{path} is there already; remove it first, or name another file", err=True)
        raise typer.Exit(1)
    try:
        path.write_text(preset_text(preset), "utf-8")
    except OSError as error:
        typer.echo(f"{path} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {path}; see what it means: fairlane check {path}")


def check(path: Path | None, preset: str) -> None:
    for line in explain(settings(path, preset=preset)):
        typer.echo(line)


def settings(
    path: Path | None, *, preset: str = "tasks", flags: Mapping[tuple[str, ...], Any] | None = None
) -> Settings:
    """As this process is to run, or every mistake in the terminal."""
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
