"""The one door: a command becomes events, or is refused.

Owns: the tables of which function decides which command, and which commands together. `decide`
changes nothing; its caller lets time act first (`elapse`, and `Expire` while something is due),
then logs the events, applies them, lets what has become due by them act, and then settles the
result. Must not know: who sent commands, in which turn of the event loop they came.

Several commands of one kind on one topic may be decided together, as a cohort: one decision, one
frame of the log. A cohort has the outcome that its members would have had one after the other, in
their order, at the same time. A member that must be refused is refused by itself. What cannot be
distinguished in one event, or could fail for the sake of another topic (copies, idempotency keys,
keyed records, acks that write, steps of chains, topics that do not exist yet), is decided one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from logqueue.core import commands as cmd
from logqueue.core.decide import job_admin, job_batches, routers, schedules, staging, topics
from logqueue.core.decide import leases as queues
from logqueue.core.decide.claims import claim, claim_in_turn
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.expiry import expire
from logqueue.core.decide.job_edits import edit_job
from logqueue.core.decide.redrive import redrive
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.block import FOLLOW, KEY

C = TypeVar("C", bound=cmd.Command[Any])
R = TypeVar("R")

_Row = tuple[type[Any], Callable[[State, Any, int], Decision[Any]]]


def decide(state: State, command: cmd.Command[R], now: int) -> Decision[R]:
    """Decide a command at a time.

    Args:
        state: Read only.
        command: What is wanted.
        now: The clock, ms since the epoch.

    Returns:
        The events and the result.

    Raises:
        LogqueueError: The command is refused; a cohort, as a whole: one by one, some of its
            members might not be.
    """
    if isinstance(command, cmd.Cohort):
        together: Decision[Any] = _TOGETHER[type(command.members[0])](state, command.members, now)
        return together
    return _DECIDE[type(command)](state, command, now)


def joining(state: State, commands: Sequence[cmd.Command[Any]]) -> int:
    """How many of some commands of one type on one topic, from the first on, may be decided
    together, as things are now; 0 when the first must be decided by itself."""
    kind = type(commands[0])
    topic: Topic | None = state.topics.get(commands[0].topic)
    if topic is None or kind not in _TOGETHER:
        return 0
    if kind is cmd.Append:
        # What only jobs have is refused for a log; what follows a job is checked by itself.
        texts_end = 1 << (FOLLOW if isinstance(topic, QueueTopic) else KEY)
        for count, command in enumerate(commands):
            assert isinstance(command, cmd.Append)
            has_numbers = command.block[2] or command.block[3]
            is_alone = has_numbers or command.block[1] >= texts_end
            if command.key is not None or command.keyed or is_alone:
                return count
    elif kind is cmd.AckJobs:
        if topic.config.archive is not None or topic.has_steps:
            return 0
        for count, command in enumerate(commands):
            assert isinstance(command, cmd.AckJobs)
            if command.append:
                return count
    elif kind is cmd.NackJobs and topic.attributes is not None:
        # A job that comes back to a key that another one has taken ends at once.
        return 0
    return len(commands)


def _row(command: type[C], decided: Callable[[State, C, int], Decision[Any]]) -> _Row:
    """A command and what decides it: a function of this very command."""
    return command, decided


_DECIDE = dict(
    (
        _row(cmd.PutTopic, topics.put_topic),
        _row(cmd.EnsureTopic, topics.ensure_topic),
        _row(cmd.PatchTopic, topics.patch_topic),
        _row(cmd.SetPaused, topics.set_paused),
        _row(cmd.DropTopic, topics.drop_topic),
        _row(cmd.Append, topics.append),
        _row(cmd.RemoveRecords, topics.remove_records),
        _row(cmd.Expire, expire),
        _row(cmd.Compact, topics.compact),
        _row(cmd.PutRouter, routers.put_router),
        _row(cmd.DropRouter, routers.drop_router),
        _row(cmd.Forward, routers.forward),
        _row(cmd.PutSchedule, schedules.put_schedule),
        _row(cmd.PauseSchedule, schedules.set_schedule_paused),
        _row(cmd.DropSchedule, schedules.drop_schedule),
        _row(cmd.RunSchedule, schedules.run_schedule),
        _row(cmd.FireSchedule, schedules.fire),
        _row(cmd.OpenBatch, job_batches.open_batch),
        _row(cmd.CloseBatch, job_batches.close_batch),
        _row(cmd.DropBatch, job_batches.drop_batch),
        _row(cmd.EndBatch, job_batches.end_batch),
        _row(cmd.ExpireBatches, job_batches.expire_batches),
        _row(cmd.StageChunk, staging.stage),
        _row(cmd.CommitEpoch, staging.commit),
        _row(cmd.AbortEpoch, staging.abort),
        _row(cmd.ExpireStaged, staging.expire),
        _row(cmd.ClaimJobs, claim),
        _row(cmd.AckJobs, queues.ack),
        _row(cmd.NackJobs, queues.nack),
        _row(cmd.RejectJobs, queues.reject),
        _row(cmd.ExtendLeases, queues.extend),
        _row(cmd.ReleaseStream, queues.release_stream),
        _row(cmd.CancelJob, job_admin.cancel_job),
        _row(cmd.EditJob, edit_job),
        _row(cmd.CancelKey, job_admin.cancel_key),
        _row(cmd.PurgeJobs, job_admin.purge),
        _row(cmd.ChangeJobs, job_admin.change),
        _row(cmd.Release, job_admin.release),
        _row(cmd.RedriveLetters, redrive),
    )
)

_TOGETHER: dict[type[Any], Callable[[State, Any, int], Decision[Any]]] = {
    cmd.Append: topics.append_together,
    cmd.ClaimJobs: claim_in_turn,
    cmd.AckJobs: queues.ack_together,
    cmd.NackJobs: queues.nack_together,
    cmd.ExtendLeases: queues.extend_together,
}
