"""Cursor pagination with signed cursors. A cursor is valid only for the listing it was made for.
`signing.py` encodes it, as it encodes tickets."""

from __future__ import annotations

from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.signing import Signer


def cursor(signer: Signer, listing: str, after: str | None) -> str | None:
    """Returns the signed cursor of the next page; None on the last page."""
    return None if after is None else signer.sign(f"cursor {listing}", after)


def read_cursor(signer: Signer, listing: str, text: str | None) -> str | None:
    if text is None:
        return None
    after = signer.read(f"cursor {listing}", text)
    if not isinstance(after, str):
        raise ProblemDetails(
            400, "invalid_cursor", "this cursor belongs to no page of this listing"
        )
    return after
