"""Changing many jobs of a queue, as a background operation.

Owns: the steps of it: which jobs a filter selects, a part at a time, and the portions in which they
are changed. Must not know: how operations are run and watched, HTTP.

Jobs that are written after the start are not selected. A job is changed if it is in one of the
states to which the action applies, both when the filter is held against it and when its portion is
carried out; those that were changed by others in between are counted as skipped.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from logqueue.core import commands as cmd
from logqueue.core.job_filter import JobFilter, JobFilterRun, indexed_parts, selected
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import TopicNotFound
from logqueue.model import limits
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.operations import BackgroundOperation, OperationSteps

UNDOES: dict[cmd.JobAction, cmd.JobAction] = {"hold": "release", "release": "hold"}


class JobsChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for.

    Attributes:
        wanted: Which jobs; its states are such to which the action applies.
        before_seq: Only jobs below it; None for all that there are.
        delay_ms: Of the action "delay".
        priority: Of the action "prioritize".
        limit: How many jobs to select at most; 0 for all.
    """

    topic: str
    action: cmd.JobAction
    wanted: JobFilter
    before_seq: int | None = None
    delay_ms: int = 0
    priority: int = 0
    limit: int = 0


def steps_of_change(
    engine: Engine, change: JobsChange, operation: BackgroundOperation
) -> OperationSteps:
    """Select and change jobs, in bounded steps.

    Raises:
        LogqueueError: Refused; what earlier steps have done stays done.
    """
    topic = engine.queue_now(change.topic)
    before = topic.head + 1
    if change.before_seq is not None:
        before = min(before, change.before_seq)
    search = JobFilterRun(topic, change.wanted, engine.clock.now_ms())
    indexed = indexed_parts(topic, change.wanted, before)
    operation.total = topic.live if indexed is None else indexed.size
    if change.action in UNDOES and not operation.dry_run:
        operation.undo, operation.seqs = UNDOES[change.action], array("Q")
    left = change.limit or limits.U64_MAX
    for found, scanned in selected(topic, search, indexed, before):
        operation.scanned += scanned
        # It is an estimate where an index has entries of jobs that are gone.
        operation.total = max(operation.total, operation.scanned)
        some = found[:left]
        left -= len(some)
        operation.matched += len(some)
        if operation.dry_run:
            operation.changed += len(some)
        else:
            yield None
            yield from _change(engine, topic, change, some, operation)
        yield None
        if not left:
            break
        _bring_up_to_date(engine, topic)
    operation.total = operation.scanned


def _change(
    engine: Engine,
    topic: QueueTopic,
    change: JobsChange,
    seqs: Sequence[int],
    operation: BackgroundOperation,
) -> OperationSteps:
    """Change selected jobs."""
    size = min(limits.CHANGED_PER_PASS_MAX, operation.portion_max)
    rest = [*seqs]
    while rest:
        _bring_up_to_date(engine, topic)
        outcome = engine.execute(
            cmd.ChangeJobs(
                topic.name,
                change.action,
                rest[:size],
                change.wanted.states,
                change.delay_ms,
                change.priority,
            )
        )
        changed, undone = outcome.result.changed, outcome.result.rest
        operation.note_changed(changed)
        operation.skipped += min(size, len(rest)) - len(changed) - len(undone)
        rest = [*undone, *rest[size:]]
        yield outcome


def _bring_up_to_date(engine: Engine, topic: QueueTopic) -> None:
    """Let time act on the queue.

    Raises:
        TopicNotFound: It was deleted meanwhile.
    """
    if engine.queue_now(topic.name) is not topic:
        raise TopicNotFound.named(topic.name)
