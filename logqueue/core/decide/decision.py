"""What deciding yields: the events, and how to answer once they are applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from logqueue.core.commands import Reply
from logqueue.events import AnyEvent


class Decision(NamedTuple):
    """The outcome of one command.

    Attributes:
        events: Facts to log and apply, in order; empty when nothing changes.
        answer: Builds the reply; to be called after the events are applied, exactly once.
    """

    events: list[AnyEvent]
    answer: Callable[[], Reply]
