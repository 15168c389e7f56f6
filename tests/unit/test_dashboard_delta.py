"""Deltas between frames, and what a viewer that misses some of them is sent."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fairlane.dashboard.broadcast import MAX_DELTAS, Broadcast
from fairlane.dashboard.delta import Delta, applied, difference

leaves = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
keys = st.sampled_from(["a", "b", "a/b", "~", "~1", "", "long name"])
frames = st.dictionaries(
    keys, st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=4)), max_size=4
)


@given(frames, frames)
def test_a_frame_and_its_delta_make_the_next_frame(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert applied(old, difference(old, new)) == new


def test_a_path_is_escaped_as_in_json_pointer() -> None:
    old: dict[str, Any] = {"services": {"a/b": {"x~": 1}}, "gone": 1}
    new: dict[str, Any] = {"services": {"a/b": {"x~": [2]}}, "new": {"y": 1}}
    found = difference(old, new)
    assert found == Delta({"services/a~1b/x~0": [2], "new": {"y": 1}}, ["gone"])


def frame(n: int) -> dict[str, Any]:
    return {"at": n, "same": {"x": 1}}


def broadcast(first: int, frames: int) -> Broadcast:
    found = Broadcast()
    for n in range(frames):
        found.publish(first + n, frame(n))
    return found


def test_a_viewer_that_connects_again_gets_the_deltas_it_missed() -> None:
    found = broadcast(100, 10)
    messages = [orjson.loads(each) for each in found.since(105)]
    assert [each["n"] for each in messages] == [106, 107, 108, 109]
    assert messages[0] == {"n": 106, "set": {"at": 6}, "gone": []}
    assert found.since(109) == []


def test_a_viewer_that_missed_too_much_or_saw_another_process_gets_a_whole_frame() -> None:
    frames = MAX_DELTAS + 10
    found = broadcast(100, frames)
    newest = 100 + frames - 1
    whole = {"n": newest, "full": frame(frames - 1)}
    for after in (0, 100, newest - MAX_DELTAS - 1, newest + 1, 1 << 50):
        assert [orjson.loads(each) for each in found.since(after)] == [whole], after
    assert len(found.since(newest - MAX_DELTAS)) == MAX_DELTAS


def test_a_slow_viewer_gets_the_newest_frame_and_nothing_in_between() -> None:
    found = broadcast(100, 10)
    assert orjson.loads(found.newest(108)) == {"n": 109, "set": {"at": 9}, "gone": []}
    assert orjson.loads(found.newest(107)) == {"n": 109, "full": frame(9)}
