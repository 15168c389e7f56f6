"""The command line. Each command imports its modules when it runs, so `--help` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlane.cli import (
    celery,
    dead,
    executions,
    jobs,
    keys,
    providers,
    services,
    users,
    webhooks,
    workers,
)
from fairlane.cli.audit import audit as audit_command
from fairlane.cli.backup import backup as backup_command
from fairlane.cli.backup import restore as restore_command
from fairlane.cli.bulk import EPILOG as BULK_EPILOG
from fairlane.cli.bulk import bulk as bulk_command
from fairlane.cli.doctor import EPILOG as DOCTOR_EPILOG
from fairlane.cli.doctor import doctor as doctor_command
from fairlane.cli.links import link_job, timeline_job
from fairlane.cli.migrate import migrate as migrate_command
from fairlane.cli.remote import ApiKey, Config, Url, server_url
from fairlane.cli.simulate import app as simulate_app
from fairlane.cli.skip import skip_job
from fairlane.cli.store_options import Unsafe, WaitForStores
from fairlane.cli.top import top as top_command
from fairlane.cli.whatif import whatif as whatif_command
from fairlane.tuning import steady

if TYPE_CHECKING:
    from fairlane.config.settings import Settings

app = typer.Typer(
    name="fairlane",
    help="A priority job queue and gateway for scarce AI capacity.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: its formatter alone would double the time to start
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from fairlane import __version__

        typer.echo(f"fairlane {__version__}")
        raise typer.Exit


@app.callback(
    epilog="""Start: fairlane serve. Then, in another terminal: fairlane jobs submit hello --wait.

Commands that call a server find it by --url, FAIRLANE_URL or fairlane.toml, in this order. They
send the API key from --key or FAIRLANE_KEY."""
)
def prepare(
    version: Annotated[  # noqa: ARG001 - its callback has printed it
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A priority job queue and gateway for scarce AI capacity."""
    steady()  # every command has this process to itself


@app.command()
def demo(
    preset: Annotated[
        Literal["gateway", "generation", "regions", "tasks"],
        typer.Option(
            help="What to show: a gateway of called services, a generation queue, a service in "
            "three regions, or tasks that workers pull."
        ),
    ] = "gateway",
    seconds: Annotated[
        float, typer.Option(help="Stop after this many seconds; 0 = run until Ctrl-C.")
    ] = 0,
    data: Annotated[
        Path | None, typer.Option(help="Keep the ledger in this folder (default: a temporary one).")
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="How many times faster than real time it runs (default: gateway and regions 100, "
            "tasks 20, generation 10).",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port of the API; 0 = any free port.")] = 8000,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Run two APIs, and two dispatchers, on a private PostgreSQL and Redis.",
        ),
    ] = False,
) -> None:
    """Run a complete queue, live. The gateway: the API, four scarce services, users of all tiers.
    The generation queue: one GPU with two models, users of five tiers, quotas and paid skips.
    Regions: three regions under a provider's limit, jobs that are bound to regions, and one region
    that goes down and comes back. Tasks: pull workers with capabilities and models, of which one is
    killed and comes back."""
    from fairlane.cli.demo import run

    if cluster and data is not None:
        raise typer.BadParameter(
            "--data is the folder of an embedded ledger, and --cluster has none; remove one of them"
        )
    run(preset, seconds, data, speed, port, cluster)


@app.command()
def bench(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    short: Annotated[
        bool, typer.Option("--short", help="Run a smoke test: small sizes, one run.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs per figure; the median is shown.")] = 3,
    jobs: Annotated[int, typer.Option(min=100, help="Jobs per run.")] = 50_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Measure on a private PostgreSQL and Redis.")
    ] = False,
    beside: Annotated[
        bool, typer.Option("--beside-pgqueuer", help="With --cluster: also measure pgqueuer.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Measure the HTTP API, in a separate server process.")
    ] = False,
    overload: Annotated[
        bool,
        typer.Option("--overload", help="With --http: offer ten times as much, for a minute."),
    ] = False,
    queue_routes: Annotated[
        bool,
        typer.Option("--queue-routes", help="With --http: the generation routes, long queues."),
    ] = False,
    tasks: Annotated[
        bool,
        typer.Option("--tasks", help="Measure tasks of the worker SDK, in process and over HTTP."),
    ] = False,
    models: Annotated[
        bool,
        typer.Option("--models", help="Measure model loads and waits under each affinity rule."),
    ] = False,
    called: Annotated[
        bool, typer.Option("--called", help="With --models: call a service that has two GPUs.")
    ] = False,
    viewers: Annotated[
        bool,
        typer.Option("--viewers", help="Measure what 100 viewers of the dashboard cost."),
    ] = False,
    services: Annotated[
        str,
        typer.Option(help="Measure claims over so many services, e.g. 1,64,256; the index alone."),
    ] = "",
) -> None:
    """Measure this machine with durable commits: submits, drain, latency, claim cost, memory."""
    from fairlane.cli.bench import run, run_models

    if (overload or queue_routes) and not http:
        flag = "--overload" if overload else "--queue-routes"
        raise typer.BadParameter(f"{flag} measures the HTTP API; add --http")
    if called and not models:
        raise typer.BadParameter("--called measures model loads; add --models")
    if models:
        run_models(short, as_json, cluster, called)
        return
    if viewers and cluster:
        raise typer.BadParameter("--viewers measures an embedded queue; remove --cluster")
    try:
        counts = [int(each) for each in services.split(",") if each]
    except ValueError:
        raise typer.BadParameter(f'--services "{services}": expected 1,64,256') from None
    run(
        short, runs, jobs, as_json, cluster, beside, http, overload, tasks, queue_routes, viewers,
        counts,
    )  # fmt: skip


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fairlane.toml"),
    preset: Annotated[
        str, typer.Option(help="The preset to copy: tasks, gateway, generation or regions.")
    ] = "tasks",
) -> None:
    """Write a settings file to start from, with comments."""
    from fairlane.cli import configure

    configure.init(preset, path)


Preset = Annotated[
    str,
    typer.Option(help="The preset if there is no file: tasks, gateway, generation or regions."),
]


@app.command()
def check(
    path: Annotated[
        Path | None, typer.Argument(help="The settings file (default: fairlane.toml, if any).")
    ] = None,
    preset: Preset = "tasks",
) -> None:
    """Explain the settings in plain words, or list every mistake in them."""
    from fairlane.cli import configure

    configure.check(path, preset)


@app.command()
def serve(  # noqa: PLR0913, PLR0917 - each is a flag of its own
    config: Config = None,
    preset: Preset = "tasks",
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 = any free port.")] = None,
    data: Annotated[str | None, typer.Option(help="The folder of the embedded ledger.")] = None,
    database_url: Annotated[str | None, typer.Option(help="PostgreSQL URL of the ledger.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Redis URL of the index.")] = None,
    no_dispatch: Annotated[
        bool,
        typer.Option(
            "--no-dispatch", help="Serve the API only; fairlane dispatch calls the services."
        ),
    ] = False,
    wait: WaitForStores = None,
    unsafe: Unsafe = False,
) -> None:
    """Serve the API and call services. It runs embedded in one process, unless the settings name
    a database."""
    from dataclasses import replace

    from fairlane.cli import configure
    from fairlane.cli.serve import run

    flags: dict[tuple[str, ...], str | float | None] = {
        ("server", "host"): host,
        ("server", "port"): port,
        ("server", "data"): data,
        ("server", "database_url"): database_url,
        ("server", "redis_url"): redis_url,
        ("server", "wait_for_stores"): wait,
        ("server", "unsafe"): unsafe or None,
    }
    settings = configure.settings(config, preset=preset, flags=flags)
    if no_dispatch:
        _demand_cluster(settings, "--no-dispatch")
        settings = replace(settings, endpoints={})
    run(settings)


@app.command()
def dispatch(
    config: Config = None,
    preset: Preset = "tasks",
    database_url: Annotated[str | None, typer.Option(help="PostgreSQL URL of the ledger.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Redis URL of the index.")] = None,
    tiers: Annotated[
        str, typer.Option(help="Take only jobs of these tiers, such as high,medium.")
    ] = "",
    wait: WaitForStores = None,
    unsafe: Unsafe = False,
) -> None:
    """Call the services of a cluster. Run any number of dispatchers beside the API servers."""
    from fairlane.cli import configure
    from fairlane.cli.calling import run

    flags: dict[tuple[str, ...], str | float | None] = {
        ("server", "database_url"): database_url,
        ("server", "redis_url"): redis_url,
        ("server", "wait_for_stores"): wait,
        ("server", "unsafe"): unsafe or None,
    }
    settings = configure.settings(config, preset=preset, flags=flags)
    _demand_cluster(settings, "fairlane dispatch")
    run(settings, _known_tiers(settings, tiers))


def _known_tiers(settings: Settings, text: str) -> frozenset[str] | None:
    named = frozenset(filter(None, text.split(",")))
    if unknown := named.difference(settings.catalog.tiers.names):
        known = ", ".join(settings.catalog.tiers.names)
        raise typer.BadParameter(f"unknown tier {', '.join(sorted(unknown))}; known: {known}")
    return named or None


def _demand_cluster(settings: Settings, what: str) -> None:
    if settings.server.mode != "cluster":
        raise typer.BadParameter(
            f"{what} needs a cluster: set --database-url and --redis-url, "
            "or DATABASE_URL and REDIS_URL"
        )


@app.command()
def worker(
    name: Annotated[
        str, typer.Argument(help="The worker, as module:variable, such as app:worker.")
    ],
    url: Annotated[
        str | None,
        typer.Option(envvar="FAIRLANE_URL", help="The server to poll for tasks, over HTTP."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="FAIRLANE_KEY", help="An API key with the role worker.")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(help="PostgreSQL of the cluster, to work without HTTP.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(help="Redis of the cluster, to work without HTTP.")
    ] = None,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Work without HTTP in the cluster of DATABASE_URL and REDIS_URL."
        ),
    ] = False,
    wait: WaitForStores = None,
    unsafe: Unsafe = False,
) -> None:
    """Run a Python worker, over HTTP or directly in a cluster."""
    from fairlane.cli import configure
    from fairlane.cli.worker import run

    if cluster:
        flags: dict[tuple[str, ...], str | float | None] = {
            ("server", "database_url"): database_url,
            ("server", "redis_url"): redis_url,
            ("server", "wait_for_stores"): wait,
        }
        settings = configure.settings(None, flags=flags)
        _demand_cluster(settings, "--cluster")
        database_url, redis_url = settings.server.database_url, settings.server.redis_url
        wait, unsafe = settings.server.wait_for_stores, unsafe or settings.server.unsafe
    if (database_url is None) != (redis_url is None):
        raise typer.BadParameter("a cluster needs both --database-url and --redis-url")
    run(name, url, key, database_url, redis_url, unsafe, 60 if wait is None else wait)


@app.command()
def echo(
    config: Config = None,
    preset: Preset = "tasks",
    region: Annotated[
        str | None, typer.Option(help="Only the services in this region; default: everywhere.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long a called service takes to answer.")
    ] = 0,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Stand in for the configured services and return their input. For a first try, before your
    own services and workers exist."""
    from fairlane.cli import configure
    from fairlane.cli.echo import StandIn, run

    stand_in = StandIn(configure.settings(config, preset=preset), region, seconds)
    run(stand_in, server_url(url, config), key)


app.command("migrate")(migrate_command)
app.command("backup")(backup_command)
app.command("restore")(restore_command)
app.command("doctor", epilog=DOCTOR_EPILOG)(doctor_command)
app.command("top")(top_command)
app.command("audit")(audit_command)
app.command("bulk", epilog=BULK_EPILOG)(bulk_command)
app.command("whatif")(whatif_command)
jobs.app.command("skip")(skip_job)
jobs.app.command("link")(link_job)
jobs.app.command("timeline")(timeline_job)
app.add_typer(celery.app, name="celery")
app.add_typer(dead.app, name="dead")
app.add_typer(executions.app, name="executions")
app.add_typer(jobs.app, name="jobs")
app.add_typer(keys.app, name="keys")
app.add_typer(providers.app, name="providers")
app.add_typer(services.app, name="services")
app.add_typer(users.app, name="users")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(workers.app, name="workers")
app.add_typer(simulate_app, name="simulate")


@app.command()
def version() -> None:
    """Print the version."""
    from fairlane import __version__

    typer.echo(__version__)
