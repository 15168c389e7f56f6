"""`fairlane executions`: the executions (cells) of a fan-out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.cli.remote import ApiKey, AsJson, Config, Remote, Url, part, query

if TYPE_CHECKING:
    from fairlane.client.connection import ApiConnection

app = typer.Typer(
    help="Executions: one combination of a fan-out's matrix each.", no_args_is_help=True
)

JobId = Annotated[str, typer.Argument(help="The fan-out's job id.")]
MAX_PAGE = 200


@app.command(
    "list",
    epilog="Example: fairlane executions list 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f --status failed",
)
def list_executions(
    job: JobId,
    status: Annotated[
        list[str] | None, typer.Option(help="Only executions in this status; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Executions to show.")] = 50,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the executions of a fan-out, with their errors."""
    from fairlane.cli.tables import print_json, print_table

    found = Remote(url, key, config).run(lambda each: _pages(each, job, status, limit))
    if as_json:
        print_json(found)
        return
    shown = found["executions"]
    axes = sorted({axis for each in shown for axis in each["cell"]})
    print_table(
        ("execution", *axes, "status", "region", "attempts", "error"),
        (
            (
                each["execution_id"],
                *(each["cell"].get(axis) for axis in axes),
                each["status"],
                each["region"],
                each["attempts"],
                each["error"]["message"] if each["error"] else None,
            )
            for each in shown
        ),
    )
    more = "; for more, raise --limit" if found["next"] else ""
    typer.echo(f"{len(shown)} shown{more}")


@app.command(
    "retry",
    epilog="""Examples: fairlane executions retry 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f

fairlane executions retry --all 018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f    (the id of the fan-out)""",
)
def retry_executions(
    execution: Annotated[str, typer.Argument(help="An execution, or with --all a fan-out.")],
    every: Annotated[
        bool, typer.Option("--all", help="Retry every failed execution of this fan-out.")
    ] = False,
    url: Url = None,
    key: ApiKey = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run a failed execution again, with all its attempts; or all failed ones of a fan-out. A
    fan-out that has ended runs again."""
    from fairlane.cli.tables import print_json

    name = part(execution)
    path = (
        f"/api/v1/jobs/{name}/retry-failed"
        if every
        else f"/api/v1/executions/{name}/retry-question"
    )
    answer = Remote(url, key, config).call("POST", path)
    if as_json:
        print_json(answer)
    elif every:
        typer.echo(f"{answer['job_id']}  {answer['status']}, {answer['count']} queued again")
    else:
        typer.echo(f"{answer['execution_id']}  {answer['status']}")


async def _pages(
    connection: ApiConnection, job: str, status: list[str] | None, limit: int
) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        size = min(limit - len(found), MAX_PAGE)
        wanted = query(status=status, limit=size, cursor=cursor)
        page = await connection.call("GET", f"/api/v1/jobs/{part(job)}/executions{wanted}")
        found, cursor = [*found, *page["executions"]], page["next"]
        if cursor is None or len(found) >= limit:
            return {"executions": found, "next": cursor}
