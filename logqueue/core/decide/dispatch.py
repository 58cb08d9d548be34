"""The one door: a command becomes events, or is refused.

Owns: the table of which function decides which command. `decide` changes nothing; its caller
it lets time act first (`elapse`, and `Expire` while something is due), then logs the events,
applies them, lets what has become due by them act, and then settles the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from logqueue.core import commands as cmd
from logqueue.core.decide import job_admin, routers, staging, topics
from logqueue.core.decide import leases as queues
from logqueue.core.decide.claims import claim
from logqueue.core.decide.cohorts import decide_cohort
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.expiry import expire
from logqueue.core.decide.redrive import redrive
from logqueue.core.state import State

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
        LogqueueError: The command is refused.
    """
    return _DECIDE[type(command)](state, command, now)


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
        _row(cmd.StageChunk, staging.stage),
        _row(cmd.CommitEpoch, staging.commit),
        _row(cmd.ExpireStaged, staging.expire),
        _row(cmd.ClaimJobs, claim),
        _row(cmd.Cohort, decide_cohort),
        _row(cmd.AckJobs, queues.ack),
        _row(cmd.NackJobs, queues.nack),
        _row(cmd.RejectJobs, queues.reject),
        _row(cmd.ExtendLeases, queues.extend),
        _row(cmd.ReleaseStream, queues.release_stream),
        _row(cmd.CancelJob, job_admin.cancel_job),
        _row(cmd.CancelKey, job_admin.cancel_key),
        _row(cmd.PurgeJobs, job_admin.purge),
        _row(cmd.Release, job_admin.release),
        _row(cmd.RedriveLetters, redrive),
    )
)
