"""Lines of a streamed response, however they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from fairlane.dispatch.streamed_response import lines

MAX_BYTES = 5


async def parts(sizes: list[int], body: bytes) -> AsyncIterator[bytes]:
    for size in sizes:
        yield body[:size]
        body = body[size:]
    yield body


@given(
    st.lists(st.binary(max_size=2 * MAX_BYTES).map(lambda line: line.replace(b"\n", b""))),
    st.lists(st.integers(1, 7)),
)
async def test_lines_are_the_same_in_whatever_parts_they_arrive(
    sent: list[bytes], sizes: list[int]
) -> None:
    """S13: a line of more than the limit is not held, and counts as one line."""
    body = b"\n".join(sent)
    wanted = [each + b"\n" for each in sent[:-1]] + [each for each in sent[-1:] if each]
    read = [line async for line in lines(parts(sizes, body), MAX_BYTES)]
    assert read == [line if len(line.rstrip(b"\n")) <= MAX_BYTES else None for line in wanted]
