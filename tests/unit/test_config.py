"""Settings are read from files and variables, and every mistake is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import presets
from fairlane.config.explain import explain
from fairlane.config.load import load, preset_names
from fairlane.config.setting_errors import BadSettings
from fairlane.config.settings import Settings
from fairlane.model.catalog import Catalog
from fairlane.model.celery_bridge import CeleryTask
from fairlane.model.credits import CreditSettings
from fairlane.model.service import Executor


def read(tmp_path: Path, text: str, **environment: str) -> Settings:
    path = tmp_path / "fairlane.toml"
    path.write_text(text, "utf-8")
    return load(path, environment=environment)


def mistakes(tmp_path: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        read(tmp_path, text, **environment)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]


def contents(catalog: Catalog) -> tuple[object, ...]:
    return (
        catalog.tiers.all,
        catalog.tiers.default,
        catalog.services,
        catalog.providers,
        catalog.pipelines,
        catalog.limits,
        catalog.task_defaults,
        catalog.credits,
    )


RATE = 'a rate is a number per minute: 600, "600/m", "10/s" or "36000/h"'
ADDRESS = "a URL begins with http:// or https:// and names a host"


# --- presets -------------------------------------------------------------------------------------
def test_every_preset_has_a_file() -> None:
    assert preset_names() == sorted(presets.PRESETS)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_the_file_of_a_preset_says_what_the_preset_is(name: str) -> None:
    assert contents(load(preset=name).catalog) == contents(presets.PRESETS[name]())


def test_without_a_file_it_is_the_preset_for_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load().source == "preset tasks"
    (tmp_path / "fairlane.toml").write_text("[server]\nport = 1234\n")
    assert load().server.port == 1234


def test_a_file_without_services_accepts_any_task(tmp_path: Path) -> None:
    settings = read(tmp_path, "")
    assert settings.catalog.service("whatever").executor is Executor.PULL
    assert "any task type is accepted" in settings.notes[0]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://x/?key=1", "no query and no fragment"),
        ("http://x/#there", "no query and no fragment"),
        ("http://x:99999", "a number from 1 to 65535"),
        ("http://x:0", "a number from 1 to 65535"),
        ("http://x:port", "a number from 1 to 65535"),
    ],
)
def test_an_address_that_a_start_would_refuse_is_refused_by_check(
    tmp_path: Path, url: str, why: str
) -> None:
    with pytest.raises(BadSettings, match=why):
        read(tmp_path, f'[services.a]\nurl = "{url}"\n')


# --- the whole file ------------------------------------------------------------------------------
EVERYTHING = """
[server]
host = "0.0.0.0"
data = "elsewhere"
lease = 5
allowed_hosts = ["Queue.example"]
trusted_proxies = ["10.0.0.0/8"]
[tiers]
order = ["high", "medium", "low"]
default = "low"
[tiers.low]
promote = { medium = 600, high = 1800 }
max_retries = 2
timeout = 900
pending = 4
per_hour = 0
max_duration = 0
max_running_per_user = 1
[services.image_gen]
url = "http://image-gen:9000/"
headers = { Authorization = "env:IMAGE_KEY" }
limit = 1
timeout = 400
max_wait = 0
max_attempts = 3
retry_on = [500]
retry_place = "back"
overrun = "strict"
affinity = "residency"
fairness = "user"
provider = "modal"
rate = "10/s"
[services.image_gen.regions.US]
url = "https://us.example"
limit = 4
[services.checked]
capabilities = ["gpu"]
[providers.modal]
limit = 10
rate = "600/m"
[pipelines]
both = ["checked", "image_gen"]
[priority]
url = "http://priority:8080"
fallback = "low"
"""


def test_a_file_becomes_settings(tmp_path: Path) -> None:
    settings = read(tmp_path, EVERYTHING, IMAGE_KEY="Bearer s3cret")
    image = settings.catalog.service("image_gen")
    assert (image.executor, image.limit, image.rate, image.strict) == (Executor.HTTP, 1, 600, True)
    assert settings.catalog.service("checked").executor is Executor.PULL
    endpoint = settings.endpoints["image_gen"]
    assert list(settings.endpoints) == ["image_gen"]
    assert endpoint.url_in(None) == "http://image-gen:9000"
    assert endpoint.url_in("US") == "https://us.example"
    assert endpoint.headers == {"Authorization": "Bearer s3cret"}
    assert endpoint.retry_on == {500}
    assert settings.catalog.providers["modal"].rate == 600
    low = settings.catalog.tiers["low"]
    assert (low.pending, low.max_running_per_user, low.timeout) == (4, 1, 900)
    assert settings.catalog.tiers["high"].max_retries == 5
    assert settings.priority is not None
    assert settings.priority.fallback == "low"
    assert settings.server.allowed_hosts == ("queue.example",)
    assert not settings.server.loopback
    assert settings.server.lease == 5


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    settings = read(
        tmp_path, EVERYTHING, IMAGE_KEY="Bearer s3cret", DATABASE_URL="postgresql://x:pw9@h/d"
    )
    shown = repr(settings) + "\n".join(explain(settings))
    assert "s3cret" not in shown
    assert "pw9" not in shown


# --- variables -----------------------------------------------------------------------------------
def test_variables_win_over_the_file_and_older_names_over_variables(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "[server]\nport = 1\n[services.image_GEN]\nlimit = 1\n",
        FAIRLANE_SERVER__PORT="9000",
        FAIRLANE_SERVER__ALLOWED_HOSTS="a.example, b.example",
        FAIRLANE_SERVICES__IMAGE_GEN__LIMIT="3",
        FAIRLANE_SERVER__DATABASE_URL="postgresql://first/db",
        DATABASE_URL="postgresql://second/db",
        REDIS_URL="redis://third",
        PRIORITY_API_URL="http://priority",
        FAIRLANE_URL="http://not-a-setting",
    )
    server = settings.server
    assert (server.port, server.allowed_hosts) == (9000, ("a.example", "b.example"))
    assert (server.database_url, server.mode) == ("postgresql://second/db", "cluster")
    assert settings.catalog.service("image_GEN").limit == 3
    assert settings.priority is not None
    assert settings.priority.url == "http://priority"


def test_flags_win_over_everything(tmp_path: Path) -> None:
    path = tmp_path / "fairlane.toml"
    path.write_text("[server]\nport = 1\n")
    flags: dict[tuple[str, ...], int | None] = {("server", "port"): 3, ("server", "host"): None}
    settings = load(path, environment={"FAIRLANE_SERVER__PORT": "2"}, flags=flags)
    assert (settings.server.port, settings.server.host) == (3, "127.0.0.1")


@pytest.mark.parametrize(
    ("variables", "low", "medium"),
    [
        ({"LOW_TO_MEDIUM": "60"}, {"medium": 60, "high": 1200}, {"high": 1200}),
        ({"MEDIUM_TO_HIGH": "90"}, {"medium": 600, "high": 600}, {"high": 90}),
        (
            {"LOW_TO_MEDIUM": "60", "MEDIUM_TO_HIGH": "90"},
            {"medium": 60, "high": 90},
            {"high": 90},
        ),
    ],
)
def test_the_older_names_of_promotions_set_all_three(
    variables: dict[str, str], low: dict[str, float], medium: dict[str, float]
) -> None:
    named = {f"PROMOTE_{name}_AFTER": value for name, value in variables.items()}
    tiers = load(preset="tasks", environment=named).catalog.tiers
    assert (tiers["low"].promote, tiers["medium"].promote) == (low, medium)


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+sentinel", "redis+cluster"])
def test_several_redis_servers_are_one_index(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://a:1,b:2/name"
    settings = read(tmp_path, "", DATABASE_URL="postgresql://h/d", REDIS_URL=url)
    assert (settings.server.mode, settings.server.redis_url) == ("cluster", url)


def test_redis_without_a_database_is_left_alone(tmp_path: Path) -> None:
    settings = read(tmp_path, "", REDIS_URL="redis://somebody-elses")
    assert (settings.server.mode, settings.server.redis_url) == ("embedded", None)
    assert "redis_url is not used" in settings.notes[0]


CELERY = """
[celery]
broker_url = "redis://:secret@h/0"
result_backend = "redis://:secret@h/1"
[services.a]
celery_task = "app.render"
"""


def test_a_celery_task_is_a_service(tmp_path: Path) -> None:
    settings = read(tmp_path, f"{CELERY}limit = 4\ncelery_queue = 'gpu'")
    service = settings.catalog.service("a")
    assert (service.executor, service.limit, service.strict) == ("celery", 4, True)
    assert service.affinity == "none"
    assert settings.endpoints == {}
    assert settings.celery_bridge is not None
    assert settings.celery_bridge.tasks == {"a": CeleryTask("app.render", "gpu")}
    assert settings.celery_bridge.start_timeout == 60
    lines = "\n".join(explain(settings))
    assert "a: run by Celery workers of the queue gpu as app.render; at most 4 at once" in lines
    assert "secret" not in repr(settings) + lines


# --- mistakes ------------------------------------------------------------------------------------
def test_every_mistake_is_named_with_its_place_and_what_would_have_been_right(
    tmp_path: Path,
) -> None:
    found = mistakes(
        tmp_path,
        """
        [server]
        prot = 1
        port = "x"
        [tiers]
        ordr = ["a"]
        [services.a]
        limt = 3
        rate = "5/x"
        url = "a-host:80"
        headers = { A = "what is wrong with a is known" }
        [services.b.regions.US]
        lmit = 1
        [services.c]
        retry_on = [500]
        [pipelines]
        x = ["a", "d"]
        """,
        FAIRLANE_SERVR__PORT="1",
        FAIRLANE_SERVER__HOSTT="x",
    )
    assert found == [
        'FAIRLANE_SERVR__PORT: there is no section "servr"; did you mean "server"?',
        "fairlane.toml: server.port: input should be a valid integer, not 'x'",
        'fairlane.toml: server.prot: no such setting; did you mean "port"?',
        'FAIRLANE_SERVER__HOSTT: server.hostt: no such setting; did you mean "host"?',
        'fairlane.toml: tiers.ordr: no such setting; did you mean "order"?',
        f"fairlane.toml: services.a.rate: {RATE}",
        f"fairlane.toml: services.a.url: {ADDRESS}",
        'fairlane.toml: services.a.limt: no such setting; did you mean "limit"?',
        'fairlane.toml: services.b.regions.US.lmit: no such setting; did you mean "limit"?',
        "fairlane.toml: services.c.retry_on: is only for a service with a url; add a url",
        'fairlane.toml: pipelines.x: service "d" is not configured; known: a, b, c',
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[tiers.lwo]\n", 'tiers.lwo: is not in tiers.order; did you mean "low"?'),
        ('[tiers]\ndefault = "x"', 'tiers.default: tier "x" is not configured'),
        ('[tiers]\norder = ["a", "a"]', "tiers.order: names every tier once"),
        ("[tiers.low]\npromote = { hgh = 1 }", 'tiers.low.promote: tier "hgh" is not configured'),
        ("[services.a]\nprovider = 'x'", 'services.a.provider: provider "x" is not configured'),
        ("[services.a]\nexecutor = 'http'", "services.a.url: is needed"),
        ("[services.a]\nretry_on = [500]", "services.a.retry_on: is only for a service with a"),
        ("[services.a]\nurl = 'http://h'\nexecutor = 'pull'", "services.a.url: a service with a"),
        ("[services.a]\nurl = 'http://u:p@h'", "services.a.url: a URL must not contain a password"),
        ("[services.a]\n[pipelines]\nx = ['b']", 'pipelines.x: service "b" is not configured'),
        ("[services.a]\n[pipelines]\nx = []", "pipelines.x: has no steps"),
        ("[services.a]\nrate = '90/h'", "services.a.rate: a rate is a whole number per minute"),
        ("[services.'a b']", 'service "a b": a name is 1 to 100'),
        ("[priority]\nurl = 'http://p'\nfallback = 'gold'", "priority.fallback: tier"),
        ("[server]\ntrusted_proxies = ['x']", 'server.trusted_proxies: "x" is not an IP address'),
        ("[server]\ndatabase_url = 'mysql://u:p@h/d'", 'not "mysql:…"'),
        ("[server]\nredis_url = 'h:1'", "server.redis_url: a URL begins with"),
        (
            "[services.a]\nurl = 'http://h'\nheaders = { A = 'env:NO_SUCH' }",
            "services.a.headers.A: the environment variable NO_SUCH is not set",
        ),
        (
            '[services.a]\nurl = "http://h"\nheaders = { A = "b\\r\\nHost: x" }',
            "services.a.headers.A: the value holds a line break",
        ),
        (
            "[services.a]\nurl = 'http://h'\nheaders = { 'A B' = 'c' }",
            "services.a.headers.A B: is no name of a header",
        ),
        (
            "[priority]\nurl = 'http://p'\nheaders = { Content-Length = '5' }",
            "priority.headers.Content-Length: is set for each request by itself",
        ),
        ("[services.a]\nexecutor = 'celery'", "services.a.celery_task: is needed"),
        ("[services.a]\ncelery_tsk = 'x'", 'no such setting; did you mean "celery_task"?'),
        ("[services.a]\ncelery_queue = 'x'", "services.a.celery_queue: is only for a service"),
        (f"{CELERY}executor = 'pull'", "services.a.celery_task: a service with a celery_task has"),
        (f"{CELERY}url = 'http://h'", "services.a.url: is not for a service with a celery_task"),
        (f"{CELERY}retry_on = [500]", "services.a.retry_on: is not for a service with a"),
        (f"{CELERY}affinity = 'batch'", "services.a.affinity: Celery chooses the worker"),
        (f"{CELERY}[services.a.regions.US]", "services.a.regions: is not for a service with a"),
        (
            "[celery]\nresult_backend = 'rpc://'",
            "celery.result_backend: a URL begins with redis://",
        ),
        ("[server]\nredis_url = 'http://h'", "server.redis_url: a URL begins with one of redis://"),
        ("[celery]\nredis_url = 'redis+cluster://h'", "celery.redis_url: a URL begins with one of"),
        ("[celery]\nbroker_url = 'h:1'", "celery.broker_url: a URL is needed"),
        ("[celery]\nbroker = 'redis://h'", 'celery.broker: no such setting; did you mean "broker_'),
        (
            "[services.a]\ncelery_task = 'x'\n[celery]\nbroker_url = 'redis://h'",
            "celery.result_backend: is needed for services.a.celery_task",
        ),
        ("[tiers.low]\nweight = 1", "tiers.low.weight: this setting was removed"),
        ("[server", "is not valid TOML"),
        ("[services]\na = 3", "services.a: a table is needed here"),
    ],
)
def test_a_mistake_says_where_it_is(tmp_path: Path, text: str, mistake: str) -> None:
    (found,) = mistakes(tmp_path, text)
    assert mistake in found
    assert found.startswith("fairlane.toml: ")


def test_a_secret_with_a_line_break_is_a_mistake_and_is_not_told(tmp_path: Path) -> None:
    """A file with a secret often ends with one."""
    text = "[services.a]\nurl = 'http://h'\nheaders = { A = 'env:IMAGE_KEY' }"
    (found,) = mistakes(tmp_path, text, IMAGE_KEY="s3cret\n")
    assert "services.a.headers.A: the value holds a line break" in found
    assert "s3cret" not in found


def test_the_prices_of_skips_and_their_currency_are_settings(tmp_path: Path) -> None:
    text = (
        '[credits]\ncurrency = "gold"\nskip_prices = [[2.5, 1], [60, 7]]\nlonger_skip_price = 20\n'
    )
    settings = read(tmp_path, text)
    assert settings.catalog.credits == CreditSettings("gold", ((2.5, 1), (60, 7)), 20)
    told = "Paid skips: 1 up to 2.5 s, 7 up to 1 min, 20 for longer jobs, in gold"
    assert told in explain(settings)


@pytest.mark.parametrize(
    ("prices", "why"),
    [
        ("[[30, 1], [10, 3]]", "the durations of skip_prices rise"),
        ("[[10, 0]]", "greater than or equal to 1"),
        ("[[10, 1.5]]", "integer"),
        ("[[0, 1]]", "greater than 0"),
        ("[[10]]", "the price of a skip is [seconds, credits], such as [10, 1]"),
        ("[[10, 1, 1]]", "the price of a skip is [seconds, credits], such as [10, 1]"),
        ("[10]", "the price of a skip is [seconds, credits], such as [10, 1]"),
    ],
)
def test_prices_that_cannot_be_meant_are_one_mistake(tmp_path: Path, prices: str, why: str) -> None:
    (told,) = mistakes(tmp_path, f"[credits]\nskip_prices = {prices}\n")
    assert why in told


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_explained(name: str) -> None:
    settings = load(preset=name)
    told = "\n".join(explain(settings))
    for each in (*settings.catalog.tiers.names, *settings.catalog.services):
        assert f"  {each}" in told
