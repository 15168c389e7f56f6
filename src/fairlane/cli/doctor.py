"""`fairlane doctor`: what is wrong with a queue, with figures and the next command."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlane.cli.remote import ApiKey, Config, Remote, Url, part, query, stop

Output = Literal["table", "short", "json"]
Report = Mapping[str, Any]

COULD_NOT_LOOK = 2
JOB_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
AGAIN_SECONDS = 2.0
MARKS = {"ok": "✓", "warning": "!", "wrong": "✗", "unknown": "?"}
PLAIN_MARKS = {"ok": "+", "warning": "!", "wrong": "x", "unknown": "?"}
COLOURS = {"ok": "green", "warning": "yellow", "wrong": "bold red", "unknown": "magenta"}
NOT_LOOKED = " was not looked at: "
SUBJECT_WIDTH = 12
PIPE_WIDTH = 120


EPILOG = """\
Examples: fairlane doctor                      everything

fairlane doctor image_gen            one service

fairlane doctor 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f    why does this job not run?

Exit codes: 0 nothing is wrong, 1 something is wrong, 2 something could not be looked at."""


def doctor(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    target: Annotated[
        str | None, typer.Argument(help="A job's id or a service (default: everything).")
    ] = None,
    pre: Annotated[
        bool,
        typer.Option("--pre", help="Before serving: check settings, stores, disk, port and clock."),
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Only these checks, separated by commas.")
    ] = None,
    output: Annotated[
        Literal["table", "short", "json"],
        typer.Option("--output", "-o", help="The form: a table, one line per finding, or JSON."),
    ] = "table",
    wait: Annotated[
        float, typer.Option(min=0, help="Look again for up to so many seconds, until all is well.")
    ] = 0,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write a zip file for support, without secrets and payloads."),
    ] = None,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    preset: Annotated[
        str, typer.Option(help="With --pre: the preset if there is no settings file.")
    ] = "tasks",
) -> None:
    """Say what is wrong with the queue, with figures and the next command. Read-only. Needs an
    admin key."""
    if pre:
        from fairlane.cli.preflight import report

        if target is not None or bundle is not None:
            raise typer.BadParameter("--pre looks at no running server; leave the rest out")
        raise typer.Exit(_until_fine(lambda: report(config, preset, only), wait, output))
    remote = Remote(url, key, config)
    if bundle is not None:
        write_bundle(remote, bundle)
        return
    raise typer.Exit(live(remote, target, only, wait, output))


def live(remote: Remote, target: str | None, only: str | None, wait: float, out: Output) -> int:
    """Examines a running server. Returns the exit code."""
    if target is not None and JOB_ID.match(target):
        path = f"/admin/doctor/jobs/{part(target)}"
    else:
        path = f"/admin/doctor{query(service=target, only=only)}"
    return _until_fine(lambda: _fetched(remote, path), wait, out)


def _fetched(remote: Remote, path: str) -> Report:
    """The server's response. A server that does not answer could not be looked at."""
    try:
        found: Report = remote.call("GET", path)
    except typer.Exit as left:
        raise typer.Exit(COULD_NOT_LOOK if left.exit_code else 0) from None
    return found


def _until_fine(examine: Callable[[], Report], wait: float, out: Output) -> int:
    """Looks again until nothing is wrong or unknown, for at most so many seconds."""
    import asyncio

    until = time.monotonic() + wait
    while True:
        report = examine()
        code = exit_code(report)
        left = until - time.monotonic()
        if not code or left <= 0:
            show(report, out)
            return code
        asyncio.run(asyncio.sleep(min(AGAIN_SECONDS, left)))


def exit_code(report: Report) -> int:
    verdicts = {each["verdict"] for each in report["findings"]}
    if "wrong" in verdicts:
        return 1
    return COULD_NOT_LOOK if "unknown" in verdicts else 0


# --- showing -------------------------------------------------------------------------------------
def show(report: Report, out: Output) -> None:
    if out == "json":
        from fairlane.cli.tables import print_json

        print_json(report)
    elif out == "short":
        _show_short(report)
    else:
        _show_table(report)


def _show_short(report: Report) -> None:
    """One line for everything that is not ok, for other programs."""
    from fairlane.cli.tables import clean

    marks = _marks()
    single, folded = _folded(report["findings"])
    for each in single:
        if each["verdict"] != "ok":
            line = f"{marks[each['verdict']]} {each['subject']} {each['check']}: {each['text']}"
            typer.echo(clean(line))
    for text in folded:
        typer.echo(clean(f"{marks['unknown']} {text}"))
    typer.echo(_summary(report))


def _show_table(report: Report) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH, highlight=False)
    marks, before = _marks(), ""
    for subject, line, verdict in _lines(report, console.width, marks):
        text = Text(f"{subject if subject != before else '':<{SUBJECT_WIDTH}}")
        text.append(line, style=COLOURS[verdict] if verdict else "")
        console.print(text, soft_wrap=True)
        before = subject
    console.print(Text(_summary(report)), soft_wrap=True)


def _lines(report: Report, width: int, marks: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(subject, line, verdict) of the table: what is fine shares lines, the rest has its own."""
    import textwrap

    from fairlane.cli.tables import clean

    room = max(20, width - SUBJECT_WIDTH)
    fine: dict[str, list[str]] = {}
    rest: list[Mapping[str, Any]] = []
    single, folded = _folded(report["findings"])
    for each in single:
        if each["verdict"] == "ok":
            texts = fine.setdefault(_left(each), [])
            texts.append(f"{marks['ok']} {clean(each['text'])}")
        else:
            rest.append(each)
    for subject, texts in fine.items():
        for line in _joined(texts, room):
            yield subject, line, "ok"
    for each in rest:
        text = f"{marks[each['verdict']]} {clean(each['text'])}"
        for line in textwrap.wrap(text, room, subsequent_indent="  ", break_on_hyphens=False):
            yield _left(each), line, each["verdict"]
        yield _left(each), f"  do:   {clean(each['command'])}", ""
        yield _left(each), f"  why:  {each['page']}", ""
    for text in folded:
        yield "checks", f"{marks['unknown']} {clean(text)}", "unknown"


def _folded(findings: list[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The findings to show one by one, and a line for each cause that made several checks
    impossible."""
    by_cause: dict[str, list[Mapping[str, Any]]] = {}
    for each in findings:
        before, found, cause = each["text"].partition(NOT_LOOKED)
        if each["verdict"] == "unknown" and found and before == each["check"]:
            by_cause.setdefault(cause, []).append(each)
    several = {cause: found for cause, found in by_cause.items() if len(found) > 1}
    hidden = [each for found in several.values() for each in found]
    lines = [f"{len(found)} checks were not possible: {cause}" for cause, found in several.items()]
    return [each for each in findings if each not in hidden], lines


def _left(finding: Mapping[str, Any]) -> str:
    """What stands in the first column."""
    from fairlane.cli.tables import clean

    return "job" if finding["category"] == "job" else clean(finding["subject"])


def _joined(texts: list[str], room: int) -> Iterator[str]:
    line = ""
    for text in texts:
        if line and len(line) + 4 + len(text) > room:
            yield line
            line = ""
        line = f"{line}    {text}" if line else text
    if line:
        yield line


def _summary(report: Report) -> str:
    verdicts = [each["verdict"] for each in report["findings"]]
    counts = (
        f"{verdicts.count('wrong')} wrong, {verdicts.count('warning')} to know, "
        f"{verdicts.count('unknown')} unknown, {verdicts.count('ok')} fine"
    )
    return f"{counts} · {report['seconds']:.1f} s · read-only"


def _marks() -> Mapping[str, str]:
    encoding = sys.stdout.encoding or "ascii"
    try:
        "".join(MARKS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return PLAIN_MARKS
    return MARKS


# --- the bundle ----------------------------------------------------------------------------------
def write_bundle(remote: Remote, path: Path) -> None:
    """Lists what the file will hold, then writes it."""
    import zipfile

    from fairlane.doctor.bundle import CONTENT

    if path.exists():
        stop(f"{path} exists already; name another file")
    typer.echo(f"{path} will hold, without secrets, payloads and names of users:")
    for name, what in CONTENT.items():
        typer.echo(f"  {_file_name(name):<14} {what}")
    found = remote.call("GET", "/admin/doctor/bundle")
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as bundle:
            for name in CONTENT:
                bundle.writestr(_file_name(name), _text(found[name]))
    except OSError as error:
        stop(f"cannot write {path}: {error.strerror}; name another file")
    typer.echo(f"wrote {path} ({path.stat().st_size:,} bytes)")


def _file_name(part_name: str) -> str:
    return {"metrics": "metrics.txt", "log": "log.jsonl"}.get(part_name, f"{part_name}.json")


def _text(value: Any) -> str:
    import orjson

    if isinstance(value, str):
        return value
    if value and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
