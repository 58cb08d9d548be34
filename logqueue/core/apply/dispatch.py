"""The only code that changes the state, live and at replay alike. It never refuses.

Owns: the way of an event to its function, which is in a module by noun. Must not know: why, who
asked, the clock (every event brings `at`).

Replay may begin in the middle of history: older segments are gone, their live records come later as
`RecordsMoved`, and the leases log may be ahead of or behind the jobs log. So an event about a
record or a topic that is not there is not an error; it has nothing left to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import (
    checkpoints,
    job_batches,
    jobs,
    records,
    replacing,
    routers,
    schedules,
    staging,
    topics,
)
from logqueue.core.state import State

_APPLY: dict[type[Any], Callable[[State, Any, int], None]] = {
    **topics.APPLY,
    **records.APPLY,
    **routers.APPLY,
    **schedules.APPLY,
    **job_batches.APPLY,
    **staging.APPLY,
    **jobs.APPLY,
    **checkpoints.APPLY,
}


def apply(
    state: State,
    event: ev.Event,
    segment: int = 0,
    *,
    at_once: bool = True,
) -> None:
    """Change the state by one fact.

    Args:
        state: Changed in place.
        event: What happened, or a run of appends.
        segment: The jobs-log segment that holds the event's frame; 0 when it is not logged.
        at_once: Leave nothing of it for later; see `apply_replacing`.
    """
    topic = state.instances.get(event.topic)
    if topic is not None and topic.replacing and type(event) not in replacing.LEAVES_UNFINISHED:
        replacing.finish(state, topic)
    before = topic.batches.size if topic is not None else 0
    _APPLY[type(event)](state, event, segment)
    if topic is not None:
        # No event but a checkpoint changes records of topics other than its own; a topic that is
        # dropped has none left.
        state.live_bytes += topic.batches.size - before
        if topic.attributes is not None and topic.attributes.moved:
            job_batches.count_moved(state, topic)
        if at_once and topic.replacing:
            replacing.finish(state, topic)
