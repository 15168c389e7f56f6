"""Checks of access: API keys, and the address to listen on."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.doctor.facts import Facts, Here, KeyFacts, PortFacts
from fairlane.doctor.findings import Diagnosis, check, fine, warn, wrong
from fairlane.doctor.words import count, lasts
from fairlane.model.key import Role
from fairlane.units import SECOND

EXPIRING_MICROSECONDS = 7 * 86_400 * SECOND


@check(
    "keys-missing",
    "access",
    (KeyFacts, Here),
    "No API key exists and other machines can reach the server, or no admin key is valid any more.",
    "`fairlane keys list` shows every key with its role and expiry.",
    "`fairlane keys create --role admin` makes one. It works on the ledger directly, also "
    "without a valid key.",
)
def keys_missing(facts: Facts) -> Iterator[Diagnosis]:
    here, keys = facts[Here], facts[KeyFacts].keys
    valid = [key for key in keys if key.holds(here.now)]
    command = "fairlane keys create --role admin"
    if not keys and not here.loopback:
        yield wrong(
            f"no API key exists and other machines can reach {here.host}", 0, command, "keys"
        )
    elif keys and not any(key.role is Role.ADMIN for key in valid):
        yield wrong(f"none of {count(len(valid), 'valid key')} is an admin key", 0, command, "keys")
    elif not keys:
        yield fine(f"no key: every program on {here.host} has full access", 0)
    else:
        yield fine(f"{count(len(valid), 'valid key')}", len(valid))


@check(
    "keys-expiring",
    "access",
    (KeyFacts, Here),
    "API keys expire within seven days. Programs that use them get 401 from then on.",
    "`fairlane keys list` shows when each key expires.",
    "Create a new key, give it to the program, then revoke the old one with `fairlane keys "
    "revoke KEY`.",
)
def keys_expiring(facts: Facts) -> Iterator[Diagnosis]:
    now = facts[Here].now
    soon = (
        sorted(
            (key.expires_at, key)
            for key in facts[KeyFacts].keys
            if key.holds(now)
            and key.expires_at is not None
            and key.expires_at - now < EXPIRING_MICROSECONDS
        )
        if facts[KeyFacts].keys
        else []
    )
    if soon:
        at, key = soon[0]
        name = key.name or key.id
        text = (
            f"{count(len(soon), 'key')} will expire within a week, the first, {name}, in "
            f"{lasts(at - now)}"
        )
        yield warn(text, len(soon), "fairlane keys list", "keys")


@check(
    "port",
    "access",
    (PortFacts,),
    "Before serving: the address to listen on is taken, or not of this machine.",
    "`ss -ltnp` lists the programs that listen.",
    "Stop the other program, or choose another port with `--port` or `server.port`.",
)
def port(facts: Facts) -> Iterator[Diagnosis]:
    found = facts[PortFacts]
    if found.problem:
        yield wrong(
            f"cannot listen on {found.address}: {found.problem}", found.address, "ss -ltnp", "port"
        )
    else:
        yield fine(f"{found.address} is free", found.address)


@check(
    "settings",
    "access",
    (Here,),
    "The settings have remarks: something that is not a mistake and still may surprise.",
    "`fairlane check` explains the settings in force.",
    "Follow the remark, or leave it.",
)
def settings(facts: Facts) -> Iterator[Diagnosis]:
    here = facts[Here]
    for note in here.notes:
        yield warn(note, len(here.notes), "fairlane check", "settings")
    if not here.notes:
        number = len(here.catalog.services)
        yield fine(f"the settings are valid ({count(number, 'service')}, {here.mode})", number)


CHECKS = (keys_missing, keys_expiring)
BEFORE_SERVING = (settings, port)
