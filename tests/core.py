"""The core of an engine: ledger, index and what the engine has learnt. Tests look inside through
`core_of` only; the engine's users have its public interface."""

from fairlane.engine import Engine
from fairlane.engine.core import Core


def core_of(engine: Engine) -> Core:
    return engine._core  # noqa: SLF001 - the one place that looks inside
