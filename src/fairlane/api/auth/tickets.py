"""Tickets: short-lived, single-use credentials with which a browser opens an event stream."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from fairlane.api.signing import Signer
from fairlane.units import SECOND

TICKET_SECONDS = 30


class SignedTicket(NamedTuple):
    """A ticket is valid once, for the events of one job, for `TICKET_SECONDS`."""

    id: str
    key: str
    job: str
    until: int


def issue(signer: Signer, key: str, job: str, now: int) -> tuple[str, SignedTicket]:
    ticket = SignedTicket(secrets.token_hex(16), key, job, now + TICKET_SECONDS * SECOND)
    return signer.sign("ticket", list(ticket)), ticket


def read_ticket(signer: Signer, text: str, now: int) -> SignedTicket | None:
    found = signer.read("ticket", text)
    ticket = SignedTicket(*found) if found is not None else None
    return ticket if ticket is not None and now < ticket.until else None
