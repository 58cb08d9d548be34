"""What deciding yields: the events, and what the command results in.

Must not know: what any event or result says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from logqueue.events import Event

R = TypeVar("R")


class AfterApply(NamedTuple, Generic[R]):
    """A result that says how the state is once the events are applied.

    Attributes:
        read: Reads it; called exactly once, right after that.
    """

    read: Callable[[], R]


class Decision(NamedTuple, Generic[R]):
    """The outcome of one command.

    Attributes:
        events: To be logged and applied, in order; empty when nothing changes.
        result: What the command results in.
    """

    events: list[Event]
    result: R | AfterApply[R]

    def settle(self) -> R:
        """The result, once the events are applied."""
        result = self.result
        return result.read() if isinstance(result, AfterApply) else result


def only(decision: Decision[list[R]]) -> Decision[R]:
    """The decision about the one member of a cohort."""
    return Decision(decision.events, AfterApply(lambda: decision.settle()[0]))
