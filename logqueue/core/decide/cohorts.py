"""Several commands of one kind decided together: one decision, one frame of the log.

Owns: which commands may be decided together, and what decides them. Changes nothing. Must not know:
who sent them, in which turn of the event loop they came.

A cohort has the outcome that its members would have had one after the other, in their order, at the
same time. A member that must be refused is refused by itself. What cannot be distinguished in one
event, or could fail for the sake of another topic (copies, idempotency keys, keyed records, topics
that do not exist yet), is decided one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from logqueue.core import commands as cmd
from logqueue.core.decide import leases, topics
from logqueue.core.decide.claims import claim_in_turn
from logqueue.core.decide.decision import Decision
from logqueue.core.state import State
from logqueue.core.topic import Topic


def joining(state: State, commands: Sequence[cmd.Command[Any]]) -> int:
    """How many of some commands of one type on one topic, from the first on, may be decided
    together, as things are now; 0 when the first must be decided by itself."""
    kind = type(commands[0])
    topic: Topic | None = state.topics.get(commands[0].topic)
    if topic is None or kind not in _TOGETHER:
        return 0
    if kind is cmd.Append:
        for count, command in enumerate(commands):
            assert isinstance(command, cmd.Append)
            has_numbers = command.block[2] or command.block[3]
            if command.key is not None or command.keyed or has_numbers:
                return count
    elif kind is cmd.AckJobs and topic.config.archive is not None:
        return 0
    elif kind is cmd.NackJobs and topic.attributes is not None:
        # A job that comes back to a key that another one has taken ends at once.
        return 0
    return len(commands)


def decide_cohort(state: State, command: cmd.Cohort, now: int) -> Decision[list[Any]]:
    """Decide the members of a cohort, each of which may join it.

    Raises:
        LogqueueError: They cannot be decided together; one by one, some might.
    """
    return _TOGETHER[type(command.members[0])](state, command.members, now)


_TOGETHER: dict[type[Any], Callable[[State, Any, int], Decision[Any]]] = {
    cmd.Append: topics.append_together,
    cmd.ClaimJobs: claim_in_turn,
    cmd.AckJobs: leases.ack_together,
    cmd.NackJobs: leases.nack_together,
    cmd.ExtendLeases: leases.extend_together,
}
