"""The one door: a command becomes events, or is refused.

Owns: the table of which function decides which command. `decide` changes nothing; whoever drives
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
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.expiry import expire
from logqueue.core.decide.redrive import redrive
from logqueue.core.state import State

R = TypeVar("R")


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


_DECIDE: dict[type[Any], Callable[[State, Any, int], Decision[Any]]] = {
    cmd.PutTopic: topics.put_topic,
    cmd.EnsureTopic: topics.ensure_topic,
    cmd.PatchTopic: topics.patch_topic,
    cmd.SetPaused: topics.set_paused,
    cmd.DropTopic: topics.drop_topic,
    cmd.Append: topics.append,
    cmd.RemoveRecords: topics.remove_records,
    cmd.Expire: expire,
    cmd.Compact: topics.compact,
    cmd.PutRouter: routers.put_router,
    cmd.DropRouter: routers.drop_router,
    cmd.Forward: routers.forward,
    cmd.StageChunk: staging.stage,
    cmd.CommitEpoch: staging.commit,
    cmd.ExpireStaged: staging.expire,
    cmd.ClaimJobs: claim,
    cmd.AckJobs: queues.ack,
    cmd.NackJobs: queues.nack,
    cmd.RejectJobs: queues.reject,
    cmd.ExtendLeases: queues.extend,
    cmd.ReleaseStream: queues.release_stream,
    cmd.CancelJob: job_admin.cancel_job,
    cmd.CancelKey: job_admin.cancel_key,
    cmd.PurgeJobs: job_admin.purge,
    cmd.Release: job_admin.release,
    cmd.RedriveLetters: redrive,
}
