"""Several commands of one kind decided together: one decision, one frame of the log.

Owns: which commands may be decided together, and what decides them. Changes nothing. Must not know:
who sent them, in which turn of the event loop they came.

A cohort has the outcome that its members would have had one after the other, in their order, at the
same time. A member that must be refused is refused by itself. What cannot be told apart in one
event, or could fail for the sake of another topic (copies, idempotency keys, keyed records, topics
that do not exist yet), is decided one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue.core import commands as cmd
from logqueue.core.decide import leases, topics
from logqueue.core.decide.claims import claim_in_turn
from logqueue.core.decide.decision import Decision
from logqueue.core.state import State
from logqueue.core.topic import Topic


def may_join(state: State, command: cmd.Command[Any]) -> bool:
    """Whether a command may be decided with others of its type and topic, as things are now."""
    topic: Topic | None = state.topics.get(command.topic)
    if topic is None:
        return False
    if isinstance(command, cmd.Append):
        has_numbers = command.block[2] or command.block[3]
        return command.key is None and not command.keyed and not has_numbers
    if isinstance(command, cmd.AckJobs):
        return topic.config.archive is None
    if isinstance(command, cmd.NackJobs):
        # A job that comes back to a key that another one has taken ends at once.
        return topic.attributes is None
    return isinstance(command, (cmd.ClaimJobs, cmd.ExtendLeases))


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
