"""Findings: what a check says about one subject, with its figure and the next command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fairlane.doctor.facts import Facts, Unknown


class FindingVerdict(StrEnum):
    """`wrong`: a promise is broken or jobs cannot run. `warning`: worth knowing. `unknown`: the
    check could not look, which is not fine."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class Diagnosis(NamedTuple):
    """What a check found. `figure` is the number in the text that matters. Every diagnosis that is
    not ok has a command to paste."""

    verdict: FindingVerdict
    text: str
    subject: str = ""
    figure: str = ""
    command: str = ""


def fine(text: str, figure: object = "", subject: str = "") -> Diagnosis:
    return Diagnosis(FindingVerdict.OK, text, subject, str(figure))


def warn(text: str, figure: object, command: str, subject: str = "") -> Diagnosis:
    return Diagnosis(FindingVerdict.WARNING, text, subject, str(figure), command)


def wrong(text: str, figure: object, command: str, subject: str = "") -> Diagnosis:
    return Diagnosis(FindingVerdict.WRONG, text, subject, str(figure), command)


class Finding(NamedTuple):
    check: str
    category: str
    verdict: FindingVerdict
    subject: str
    text: str
    figure: str
    command: str
    page: str


@dataclass(frozen=True)
class Check:
    """One entry in the table of checks. `needs` are the fact groups it reads. `means`, `confirm`
    and `remedy` are its section of the page. `public`: its text names no job, user, worker or key,
    so every tenant may see it."""

    name: str
    category: str
    needs: tuple[type, ...]
    judge: Callable[[Facts], Iterable[Diagnosis]]
    means: str
    confirm: str
    remedy: str
    public: bool = False

    @property
    def page(self) -> str:
        return f"/docs/checks#{self.name}"

    def run(self, facts: Facts) -> list[Finding]:
        """The findings of this check; unknown if a fact group could not be read."""
        try:
            found = list(self.judge(facts))
        except Unknown as reason:
            text = f"{self.name} was not looked at: {reason}"
            found = [
                Diagnosis(
                    FindingVerdict.UNKNOWN, text, command=f"fairlane doctor --only {self.name}"
                )
            ]
        return [
            Finding(
                self.name,
                self.category,
                each.verdict,
                each.subject or self.category,
                each.text,
                each.figure,
                each.command,
                self.page,
            )
            for each in found
        ]


Judge = Callable[[Facts], Iterable[Diagnosis]]


def check(
    name: str,
    category: str,
    needs: tuple[type, ...],
    means: str,
    confirm: str,
    remedy: str,
    *,
    public: bool = False,
) -> Callable[[Judge], Check]:
    """Makes a function an entry of the table of checks."""

    def declare(judge: Judge) -> Check:
        return Check(name, category, needs, judge, means, confirm, remedy, public)

    return declare


def judged(checks: Sequence[Check], facts: Facts) -> list[Finding]:
    """The findings of these checks, in their order."""
    return [finding for each in checks for finding in each.run(facts)]


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if something is wrong, 2 if something could not be looked at, else 0."""
    verdicts = {each.verdict for each in findings}
    if FindingVerdict.WRONG in verdicts:
        return 1
    return 2 if FindingVerdict.UNKNOWN in verdicts else 0
