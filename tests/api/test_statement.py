"""The statement of a user's credits: every booking once, in order, with the balance after it."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
from typing import Any

import httpx2
import pytest

from fairlane.api.schemas.timestamps import iso
from fairlane.model.key import Role
from tests.api.server import TENANT, Gateway
from tests.world import World

pytestmark = pytest.mark.every_store

PATH = "/api/v1/users/ada/statement"
AS_CSV = {"Accept": "text/csv"}


async def booked(client: httpx2.AsyncClient, path: str = PATH, **wanted: Any) -> list[Any]:
    """The entries of all pages. The balance of each follows from the one before."""
    entries: list[Any] = []
    while True:
        page = (await client.get(path, params=wanted)).json()
        entries += page["entries"]
        if page["next"] is None:
            break
        wanted["cursor"] = page["next"]
    for newer, older in itertools.pairwise(entries):
        assert newer["balance"] == older["balance"] + newer["amount"]
    return entries


async def give(client: httpx2.AsyncClient, amount: int, key: str, note: str = "") -> None:
    sent = {"amount": amount, "operation_key": key, "note": note}
    assert (await client.post("/admin/users/ada/credits", json=sent)).status_code == 200


async def skipped(client: httpx2.AsyncClient, duration: float) -> str:
    sent = {"service": "work", "user_id": "ada", "duration": duration}
    job = str((await client.post("/api/v1/jobs", json=sent)).json()["job_id"])
    assert (await client.post(f"/api/v1/jobs/{job}/skip")).status_code == 200
    return job


async def test_a_statement_shows_payments_refunds_grants_and_withdrawals(
    world: World, served: Gateway
) -> None:
    """I14: newest first, although the clock stands still; a grant that is sent again is one."""
    async with served.client() as client:
        assert (await client.get(PATH)).json() == {
            "user_id": "ada",
            "currency": "aura",
            "balance": 0,
            "entries": [],
            "next": None,
        }
        for _ in range(2):
            await give(client, 20, "invoice:7", "bought")
        kept, refunded = await skipped(client, 60), await skipped(client, 20)
        await client.delete(f"/api/v1/jobs/{refunded}")
        await give(client, -4, "correction")
        found = (await client.get(PATH)).json()
        assert found["balance"] == 11
        assert [
            (each["kind"], each["amount"], each["balance"], each["job_id"], each["operation_key"])
            for each in found["entries"]
        ] == [
            ("withdrawal", -4, 11, None, "correction"),
            ("refund", 3, 15, refunded, None),
            ("payment", -3, 12, refunded, None),
            ("payment", -5, 15, kept, None),
            ("grant", 20, 20, None, "invoice:7"),
        ]
        assert found["entries"][-1]["note"] == "bought"
        assert found["entries"][-1]["at"] == iso(world.clock.now())
        await world.healthy()


async def test_every_booking_is_on_one_page_while_others_are_booked(
    world: World, served: Gateway
) -> None:
    """I29: 200 bookings of one instant in pages of 7, and eight callers who go on booking."""
    before = [world.engine.add_credits("ada", n, f"before {n}") for n in range(1, 201)]
    await asyncio.gather(*before)
    async with served.client() as client:
        done = asyncio.Event()

        async def go_on(caller: int) -> None:
            number = 0
            while not done.is_set():
                number += 1
                await world.engine.add_credits("ada", 1, f"{caller} {number}")

        others = [asyncio.create_task(go_on(caller)) for caller in range(8)]
        entries = await booked(client, limit=7)
        done.set()
        await asyncio.gather(*others)
        keys = [each["operation_key"] for each in entries]
        assert len(keys) == len({*keys})
        assert {f"before {n}" for n in range(1, 201)} <= {*keys}
        assert entries[-1]["balance"] == entries[-1]["amount"]
        entries = await booked(client, limit=200)
        balance = await world.engine.balance("ada")
        assert entries[0]["balance"] == sum(each["amount"] for each in entries) == balance


async def test_a_statement_can_be_of_some_time_only(world: World, served: Gateway) -> None:
    async with served.client() as client:
        times = []
        for n in range(5):
            times.append(iso(world.clock.now()))
            await give(client, 10, f"month-{n}")
            world.clock.advance(30 * 86_400 * 1_000_000)
        some = await booked(client, since=times[1], until=times[4], limit=2)
        keys = [(each["operation_key"], each["balance"]) for each in some]
        assert keys == [("month-3", 40), ("month-2", 30), ("month-1", 20)]
        assert [each["at"] for each in some] == times[3:0:-1]
        assert (await client.get(PATH, params={"until": times[0]})).json()["balance"] == 50
        for wrong in ("yesterday", "2026-01-31", "1"):
            told = await client.get(PATH, params={"since": wrong})
            assert told.status_code == 422
            assert "since" in told.text


async def test_a_statement_as_csv_keeps_numbers_and_runs_no_formula(
    world: World, served: Gateway
) -> None:
    async with served.client() as client:
        await give(client, 20, "a", '=1+1,"quoted"')
        job = await skipped(client, 60)
        await give(client, -3, "b", "-1")
        first = await client.get(PATH, params={"limit": 2}, headers=AS_CSV)
        assert first.headers["content-type"].startswith("text/csv")
        wanted = {"limit": "2", "cursor": first.headers["x-next-cursor"]}
        last = await client.get(PATH, params=wanted, headers=AS_CSV)
        assert "x-next-cursor" not in last.headers
        rows = [row for page in (first, last) for row in csv.DictReader(io.StringIO(page.text))]
        assert [(row["amount"], row["balance"], row["note"]) for row in rows] == [
            ("-3", "12", "'-1"),
            ("-5", "15", f"skip of {job}"),
            ("20", "20", '\'=1+1,"quoted"'),
        ]
        columns = ["at", "kind", "amount", "balance", "job_id", "operation_key", "note"]
        assert list(rows[0]) == columns
        assert [row["job_id"] for row in rows] == ["", job, ""]


async def test_a_statement_is_shown_to_its_own_tenant_only(world: World, served: Gateway) -> None:
    """S7: not to another tenant, and not to a key without act_as; a cursor opens no other one."""
    for n in range(3):
        await world.engine.add_credits("ada", 5, f"gift {n}", tenant=TENANT)
        await world.engine.add_credits("bob", 5, f"gift {n}", tenant=TENANT)
    async with (
        served.client(await served.key()) as shop,
        served.client(await served.key(Role.READ)) as reader,
        served.client(await served.key(act_as=False)) as alone,
        served.client(await served.key(tenant="other")) as other,
    ):
        for client in (shop, reader):
            assert len((await client.get(PATH)).json()["entries"]) == 3
        assert (await other.get(PATH)).json()["entries"] == []
        told = await alone.get(PATH)
        assert (told.status_code, told.json()["code"]) == (403, "forbidden")
        cursor = (await shop.get(PATH, params={"limit": 1})).json()["next"]
        for client, path, more in (
            (other, PATH, {}),
            (shop, "/api/v1/users/bob/statement", {}),
            (shop, PATH, {"since": "2026-01-31T12:00:00Z"}),
            (shop, "/api/v1/jobs", {}),
        ):
            told = await client.get(path, params={"cursor": cursor, **more})
            assert (told.status_code, told.json()["code"]) == (400, "invalid_cursor")


async def test_names_with_separators_keep_their_operation_keys(
    world: World, served: Gateway
) -> None:
    user = "a/b:credit:c" + "\N{ELEPHANT}" * 180
    for n in range(2):
        await world.engine.add_credits(user, 5, f"k:{n}{'x' * 250}")
    async with served.client() as client:
        path = "/api/v1/users/" + "".join(f"%{byte:02X}" for byte in user.encode()) + "/statement"
        keys = [each["operation_key"] for each in await booked(client, path, limit=1)]
        assert keys == [f"k:{n}{'x' * 250}" for n in (1, 0)]
