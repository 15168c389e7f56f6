"""Stores that disagree, are not durable, have no room or do not answer: each fault is found."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis as Client
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.cli.preflight import examine
from fairlane.config.load import without_settings
from fairlane.config.settings import ServerSettings, Settings
from fairlane.doctor.checks import by_name
from fairlane.doctor.facts import DriftFacts, Facts, LedgerFacts
from fairlane.doctor.findings import Finding, FindingVerdict, exit_code
from fairlane.ledger.postgres import PostgresLedger
from fairlane.ledger.store_stats import StoreSigns
from fairlane.model.job import NewJob
from fairlane.servers import Databases, Postgres, Redis
from fairlane.units import SECOND
from tests.api.server import gateway
from tests.doctor.patient import NOT_OK, WORKER, Patient, demand_complete
from tests.stores import PostgresAndRedis
from tests.world import World

DAY = 86_400


# --- ledger and index ----------------------------------------------------------------------------
async def test_an_index_that_is_being_rebuilt_is_wrong(patient: Patient) -> None:
    """I26: claims pause, and the doctor says so."""
    assert not await patient.found("index-ready")
    await patient.core.index.begin("another life")
    finding = await patient.one("index-ready", "wrong", patient.new_doctor())
    assert "no job starts" in finding.text


async def test_a_process_with_another_index_than_the_one_in_force_is_wrong(
    patient: Patient,
) -> None:
    """Two processes that name different Redis servers: the ledger confirms only one of them."""
    _, turn = await patient.core.ledger.turn()
    assert await patient.core.ledger.begin_rebuild("another life", turn.number)
    assert await patient.core.ledger.extend_rebuild("another life", done=True)
    finding = await patient.one("index-ready", "wrong")
    assert "another index" in finding.text


async def test_a_job_that_the_index_lost_is_wrong(patient: Patient) -> None:
    jobs = [await patient.world.submit("work") for _ in range(3)]
    assert not await patient.found("index-drift")
    await patient.core.index.take([(jobs[1], 1 << 40)])
    finding = await patient.one("index-drift", "wrong", patient.new_doctor())
    assert f"1 missing (such as {jobs[1]})" in finding.text


async def test_a_job_that_only_the_index_has_is_wrong(patient: Patient) -> None:
    job = await patient.world.submit("work")
    entry = patient.core.entry(await patient.world.job(job))
    await patient.engine.cancel(job)
    await patient.core.index.put([entry._replace(rev=entry.rev + 10)], patient.core.now())
    finding = await patient.one("index-drift", "wrong")
    assert f"1 stale (such as {job})" in finding.text


async def test_a_job_at_another_place_is_wrong_and_reconciliation_ends_it(
    patient: Patient,
) -> None:
    job = await patient.world.submit("work", tier="low")
    entry = patient.core.entry(await patient.world.job(job))
    await patient.core.index.correct_entry(entry, entry._replace(rank=0), patient.core.now())
    assert "1 misplaced" in (await patient.one("index-drift", "wrong")).text
    await patient.world.pass_time(0, sweeps=30)
    assert not await patient.found("index-drift", patient.new_doctor())


async def test_a_queue_too_long_to_compare_is_fine_only_if_the_counts_agree(
    patient: Patient,
) -> None:
    jobs = await patient.world.submit_all([NewJob("work") for _ in range(600)])

    async def judged() -> Finding:
        drift = await patient.engine.inspection.drift(0)
        (finding,) = by_name()["index-drift"].run(Facts({DriftFacts: DriftFacts(drift, [])}))
        return finding

    finding = await judged()
    assert finding.verdict == "ok"
    assert finding.text == "ledger and index agree (600 jobs, 250 compared)"
    await patient.core.index.take([(jobs[-1], 1 << 40)])
    finding = await judged()
    assert finding.verdict == "unknown", finding
    assert "600 waiting jobs, the index 599" in finding.text
    demand_complete(finding)


async def test_a_busy_queue_gives_no_false_alarm(patient: Patient) -> None:
    """Jobs are submitted, claimed and completed while the doctor compares."""
    await patient.alive()
    stop = asyncio.Event()

    async def work() -> None:
        while not stop.is_set():
            await patient.world.submit_all([NewJob("work") for _ in range(5)])
            for lease in await patient.world.claim(4, WORKER):
                await patient.engine.complete(lease)

    working = asyncio.create_task(work())
    try:
        for _ in range(3):
            found = await patient.new_doctor().examine({"index-drift", "slot-count", "over-limit"})
            assert {each.verdict for each in found.findings} == {FindingVerdict.OK}, found.findings
    finally:
        stop.set()
        await working


# --- the ledger ----------------------------------------------------------------------------------
async def test_a_schema_of_another_version_is_wrong(patient: Patient) -> None:
    change = (
        "INSERT INTO migrations VALUES (999)" if patient.clustered else "PRAGMA user_version = 999"
    )
    if patient.clustered:
        await patient.sql(change)
        try:
            finding = await patient.one("schema", "wrong")
        finally:
            await patient.sql("DELETE FROM migrations WHERE number = 999")
    else:
        await patient.sql(change)
        finding = await patient.one("schema", "wrong")
    assert "999" in finding.text


async def test_jobs_that_retention_should_have_deleted_are_a_warning(patient: Patient) -> None:
    await patient.alive()
    await patient.world.submit("work")
    await patient.engine.complete(await patient.world.claim_one(WORKER))
    patient.pass_seconds(7 * DAY + 500)
    assert not await patient.found("retention-behind")
    patient.pass_seconds(500)
    assert (await patient.one("retention-behind", "warning", patient.new_doctor())).figure == "1"
    await patient.world.pass_time(0, sweeps=20)
    assert not await patient.found("retention-behind", patient.new_doctor())


async def test_credits_that_do_not_add_up_are_wrong(patient: Patient) -> None:
    """I14: a balance that is not the sum of its bookings is found."""
    await patient.engine.add_credits("ada", 10, "op-1")
    assert not await patient.found("credits")
    await patient.sql("UPDATE accounts SET balance = balance + 1 WHERE balance = 10")
    assert (await patient.one("credits", "wrong", patient.new_doctor())).figure == "1"


async def test_a_fan_out_that_counts_other_executions_is_wrong(patient: Patient) -> None:
    await patient.world.submit("work", matrix={"model": ("a", "b")})
    assert not await patient.found("fan-outs")
    await patient.sql("UPDATE jobs SET cells_left = cells_left + 1 WHERE cells > 0")
    assert (await patient.one("fan-outs", "wrong", patient.new_doctor())).figure == "1"


async def test_a_clock_that_differs_is_told(patient: Patient) -> None:
    patient.ahead = SECOND // 2
    assert not await patient.found("clock-skew")
    patient.ahead = round(1.4 * SECOND)
    finding = await patient.one("clock-skew", "warning", patient.new_doctor())
    assert finding.text == "this machine is 1.4 s ahead of the queue's time"
    patient.ahead = -61 * SECOND
    await patient.one("clock-skew", "wrong", patient.new_doctor())


@pytest.mark.parametrize(
    ("check", "changed", "verdict"),
    [
        ("disk-space", {"free_bytes": 1 << 29, "disk_bytes": 1 << 40}, "wrong"),
        ("disk-space", {"free_bytes": 1 << 35, "disk_bytes": 1 << 40}, "warning"),
        ("disk-space", {"free_bytes": 1 << 38, "disk_bytes": 1 << 40}, "ok"),
        ("ledger-read-only", {"read_only": True}, "wrong"),
        ("postgres-connections", {"connections": 60, "max_connections": 100}, "ok"),
        ("postgres-connections", {"connections": 81, "max_connections": 100}, "warning"),
        ("postgres-connections", {"connections": 99, "max_connections": 100}, "wrong"),
    ],
)
@pytest.mark.embedded
async def test_a_store_at_its_limits_is_told(
    patient: Patient, check: str, changed: dict[str, Any], verdict: str
) -> None:
    """Figures that a test cannot bring about: a nearly full disk or server."""
    real = await patient.engine.store_stats.server()
    facts = Facts({LedgerFacts: LedgerFacts(real._replace(**changed))})
    (finding,) = by_name()[check].run(facts)
    assert finding.verdict == verdict
    if finding.verdict in NOT_OK:
        demand_complete(finding)


@pytest.mark.embedded
async def test_a_database_that_cannot_clean_up_is_told(patient: Patient) -> None:
    real = await patient.engine.store_stats.server()
    signs = StoreSigns(dead={"jobs": 100_001}, oldest_transaction=601 * SECOND)
    found = by_name()["postgres-vacuum"].run(Facts({LedgerFacts: LedgerFacts(real, signs)}))
    assert [each.figure for each in found] == ["10 min", "100001"]
    for each in found:
        demand_complete(each)


# --- before serving ------------------------------------------------------------------------------
async def before_serving(tmp_path: Path, **server: object) -> dict[str, Finding]:
    settings = Settings(
        Patient.SETTINGS,
        ServerSettings(data=tmp_path, port=0, **server),  # type: ignore[arg-type]
    )
    found = await examine(settings)
    for each in found:
        if each.verdict in NOT_OK:
            demand_complete(each)
    return {each.check: each for each in found}


async def test_a_new_folder_is_ready_to_serve(tmp_path: Path) -> None:
    found = await before_serving(tmp_path / "new")
    assert {each.verdict for each in found.values()} == {FindingVerdict.OK}
    assert not (tmp_path / "new").exists()


async def test_a_taken_port_and_a_public_address_without_a_key_are_wrong(tmp_path: Path) -> None:
    async with await asyncio.start_server(lambda _r, _w: None, "0.0.0.0", 0) as taken:  # noqa: S104
        port = taken.sockets[0].getsockname()[1]
        settings = ServerSettings(host="0.0.0.0", port=port, data=tmp_path)  # noqa: S104
        found = {each.check: each for each in await examine(Settings(Patient.SETTINGS, settings))}
    assert found["port"].verdict == "wrong"
    assert found["keys-missing"].verdict == "wrong"
    assert exit_code(found.values()) == 1


async def test_stores_that_cannot_be_reached_are_unknown(tmp_path: Path) -> None:
    password = "canary-8c11"
    found = await before_serving(
        tmp_path,
        database_url=f"postgresql://u:{password}@127.0.0.1:1/x",
        redis_url="redis://127.0.0.1:1",
    )
    assert found["schema"].verdict == found["redis-eviction"].verdict == "unknown"
    assert "cannot reach PostgreSQL" in found["schema"].text
    assert password not in repr(found)
    assert exit_code(found.values()) == 2


async def test_a_database_is_checked_before_serving(
    tmp_path: Path, postgres_server: Databases
) -> None:
    url = await postgres_server.new_database()
    found = await before_serving(tmp_path, database_url=url)
    assert found["schema"].command == "fairlane migrate"
    assert found["postgres-durability"].figure == "fsync = off"
    name = url.rpartition("/")[2]
    connection = await asyncpg.connect(url)
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await connection.close()
    found = await before_serving(tmp_path, database_url=url)
    assert found["ledger-read-only"].verdict == "wrong"
    assert found["postgres-durability"].figure == "synchronous_commit = off"


# --- a Redis of its own --------------------------------------------------------------------------
@pytest.fixture(scope="module")
def own_redis() -> AsyncIterator[Redis]:  # type: ignore[misc]
    with Redis() as server:
        yield server


@pytest.fixture
async def clustered(
    tmp_path: Path, own_redis: Redis, postgres_server: Databases
) -> AsyncIterator[tuple[Patient, Client]]:
    stores = PostgresAndRedis(postgres_server, own_redis)
    async with AsyncExitStack() as stack:
        world = World(Patient.SETTINGS, tmp_path / "ledger.db", where=stores)
        await stack.enter_async_context(world)
        client = Client.from_url(own_redis.url)
        stack.push_async_callback(client.aclose)
        yield Patient(world), client


async def command(redis: Client, *words: str) -> None:
    await redis.execute_command(*words)  # type: ignore[no-untyped-call]


async def test_a_redis_that_may_evict_or_is_nearly_full_is_told(
    clustered: tuple[Patient, Client],
) -> None:
    patient, redis = clustered
    for check in ("redis-eviction", "redis-memory", "redis-writes"):
        assert not await patient.found(check)
    used = int((await redis.info("memory"))["used_memory"])
    await redis.config_set("maxmemory", used * 11 // 10)
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        finding = await patient.one("redis-eviction", "wrong", patient.new_doctor())
        assert finding.figure == "allkeys-lru"
        await patient.one("redis-memory", "warning", patient.new_doctor())
    finally:
        await redis.config_set("maxmemory", 0)
        await redis.config_set("maxmemory-policy", "noeviction")


async def test_a_redis_that_became_a_replica_is_wrong(clustered: tuple[Patient, Client]) -> None:
    patient, redis = clustered
    await command(redis, "REPLICAOF", "127.0.0.1", "1")
    try:
        finding = await patient.one("redis-writes", "wrong")
        assert "a read-only replica" in finding.text
    finally:
        await command(redis, "REPLICAOF", "NO", "ONE")


async def test_live_updates_that_do_not_arrive_are_wrong(clustered: tuple[Patient, Client]) -> None:
    patient, redis = clustered
    assert not await patient.found("events-late")
    await command(redis, "ACL", "SETUSER", "default", "resetchannels")
    await command(redis, "CLIENT", "KILL", "TYPE", "pubsub")
    try:
        await patient.one("events-late", "wrong", patient.new_doctor())
    finally:
        await command(redis, "ACL", "SETUSER", "default", "allchannels")


async def test_a_redis_that_hangs_makes_checks_unknown_within_three_seconds(
    clustered: tuple[Patient, Client], own_redis: Redis
) -> None:
    """Unknown is not fine: the exit code is not 0, and what needs no Redis is still looked at."""
    patient, _ = clustered
    await patient.alive()
    own_redis.pause()
    try:
        began = time.monotonic()
        examination = await patient.doctor.examine()
        took = time.monotonic() - began
    finally:
        own_redis.resume()
    found = {each.check: each.verdict for each in examination.findings}
    assert found["index-ready"] == "wrong"
    assert found["redis-eviction"] == found["index-drift"] == found["no-worker"] == "unknown"
    assert found["schema"] == found["keys-missing"] == "ok"
    assert took < 30  # each group has 2 s, and all are read at once
    unknown = [each for each in examination.findings if each.verdict is not FindingVerdict.WRONG]
    assert exit_code(unknown) == 2
    assert exit_code(examination.findings) == 1


async def test_a_redis_that_was_killed_is_wrong_and_what_needs_it_is_one_line(
    clustered: tuple[Patient, Client], own_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient, _ = clustered
    await patient.alive()
    for name in set(os.environ) - set(without_settings(os.environ)):
        monkeypatch.delenv(name)
    async with gateway(patient.engine) as served:
        served.app.app_context.doctor = patient.doctor
        own_redis.kill()
        try:
            finding = await patient.one("index-ready", "wrong")
            said, short = [
                await asyncio.to_thread(
                    CliRunner().invoke,
                    app,
                    ["doctor", "-o", form],
                    env={"FAIRLANE_URL": served.url},
                )
                for form in ("table", "short")
            ]
        finally:
            own_redis.start()
    assert "Redis does not answer: no job starts" in finding.text
    assert finding.command == 'redis-cli -u "$REDIS_URL" PING'
    for each in (said, short):
        assert each.exit_code == 1
        assert "was not looked at: the index cannot be reached" not in each.stdout
        assert each.stdout.count("checks were not possible: the index cannot be reached") == 1
    wrong = [line for line in said.stdout.splitlines() if "✗" in line]
    assert "Redis does not answer" in wrong[0]


async def test_full_memory_of_redis_asks_for_more_memory(
    clustered: tuple[Patient, Client],
) -> None:
    patient, redis = clustered
    await redis.config_set("maxmemory", int((await redis.info("memory"))["used_memory"]) // 2)
    try:
        finding = await patient.one("redis-writes", "wrong")
    finally:
        await redis.config_set("maxmemory", 0)
    assert "its memory is full" in finding.text
    assert 'redis-cli -u "$REDIS_URL" CONFIG SET maxmemory ' in finding.command


async def test_a_read_only_ledger_is_the_cause_and_no_job_is_to_be_cancelled(
    clustered: tuple[Patient, Client], postgres_server: Databases
) -> None:
    """Leases end because nothing can be written. To cancel the jobs would not help."""
    patient, _ = clustered
    await patient.alive()
    for _ in range(2):
        await patient.world.submit("scarce")
    lease = await patient.world.claim_one(WORKER)
    patient.pass_seconds(60)
    ledger = patient.core.ledger
    assert isinstance(ledger, PostgresLedger)
    async with ledger._pool.acquire() as connection:  # noqa: SLF001 - by hand
        name = await connection.fetchval("SELECT current_database()")
    server = await asyncpg.connect(await postgres_server.new_database())  # another database
    try:
        await server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await ledger._pool.expire_connections()  # noqa: SLF001 - sessions keep their setting
        found = (await patient.new_doctor().examine()).findings
    finally:
        await server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await ledger._pool.expire_connections()  # noqa: SLF001 - sessions keep their setting
        await server.close()
    wrong = [each for each in found if each.verdict is FindingVerdict.WRONG]
    assert wrong[0].check == "ledger-read-only"
    assert wrong[0].command.startswith('psql "$DATABASE_URL"')
    (stuck,) = [each for each in wrong if each.check == "stuck-slot"]
    assert stuck.command == f"fairlane jobs show {lease.job}"
    assert "1 of 1 slot taken" in stuck.text
    assert not any("cancel" in each.command for each in found)


@pytest.mark.long
async def test_a_healthy_cluster_on_a_durable_server_has_nothing_wrong(
    tmp_path: Path, own_redis: Redis
) -> None:
    with Postgres(fsync=True, in_memory=True) as server:
        stores = PostgresAndRedis(server, own_redis)
        async with World(Patient.SETTINGS, tmp_path / "ledger.db", where=stores) as world:
            patient = Patient(world)
            await patient.alive()
            await world.submit("work")
            await world.engine.sweep()
            examination = await patient.doctor.examine()
            assert {each.verdict for each in examination.findings} == {FindingVerdict.OK}
