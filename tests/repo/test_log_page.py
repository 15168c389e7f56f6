"""Every line of the log about jobs and services is documented with its level."""

from __future__ import annotations

import ast
import inspect

from fairlane.engine import job_log
from tests.repo.tables import DOCS, table

PAGE = DOCS / "reference" / "logs.md"
BESIDE = "the Priority Service"
"""Lines that are not of the journal begin like this."""


def test_every_line_about_jobs_and_services_is_documented() -> None:
    documented = {row["message"] for row in table(PAGE, "Logs")}
    said = {each for each in documented if not each.startswith(BESIDE)}
    assert said == _texts()


def test_the_levels_of_endings_are_those_that_are_documented() -> None:
    documented = {row["message"]: row["level"] for row in table(PAGE, "Logs")}
    levels = {10: "debug", 20: "info", 30: "warning"}
    for level, text in job_log.ENDINGS.values():
        assert documented[text] == levels[level]


def _texts() -> set[str]:
    """The messages in the source: constants that are not field names, docstrings or loggers."""
    tree = ast.parse(inspect.getsource(job_log))
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    starts = ("job ", "attempt ", "step ", "fan-out ", "late ", "circuit ")
    return {text for text in texts if text.startswith(starts)}
