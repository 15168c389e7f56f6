"""Fast construction of NamedTuples, for the hot paths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

Noun = TypeVar("Noun", bound=tuple[Any, ...])


def maker(kind: type[Noun]) -> Callable[[tuple[Any, ...]], Noun]:
    """Makes the named tuple from all its values in their order, in a third of its constructor's
    time. Only for what every job passes through: no defaults, no names, nothing checked."""
    return cast("Callable[[tuple[Any, ...]], Noun]", partial(tuple.__new__, kind))
