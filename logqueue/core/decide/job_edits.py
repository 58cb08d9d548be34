"""Deciding an edit: a waiting or held job gets other content. Nothing here changes the state.

Owns: what the job keeps. Must not know: keyed writes, which make the same event for another reason.

The job keeps its seq, its time of writing, its producer, key, deliveries and last error, and when
it expires. It also keeps when it is due, unless it is to be retried: it was replaced, so it comes
by a time of its own (`record_times.is_timed`), and that time is written with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.job_filter import state_of
from logqueue.core.job_views import JobSummary, describe_job
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import expires_at
from logqueue.core.state import State
from logqueue.errors import JobInFlight, KeyConflict, NotFound, RecordTooLarge, quoted
from logqueue.events import block as blocks
from logqueue.model import limits

_REPLACED = ev.RESULTS.index("replaced")


def edit_job(state: State, command: cmd.EditJob, now: int) -> Decision[cmd.EditResult]:
    """The events of an edit.

    Raises:
        NotFound: There is no such job.
        JobInFlight: It is leased.
        KeyConflict: It is held, and a waiting job has its key by now.
        RecordTooLarge: Data and meta together are too large.
        StorageUnreadable: The disk does not give what it is to keep.
    """
    topic = state.queue(command.topic)
    seq = command.seq
    job = describe_job(topic, seq)
    if job is None:
        raise NotFound(
            f"topic {quoted(topic.name)} has no job {seq}, or it has ended",
            {"topic": topic.name, "seq": seq},
        )
    _require_waiting(topic, job)
    due = job.not_before if job.state == "delayed" and not command.retry else 0
    events: list[ev.Event] = []
    if job.state == "held" and command.retry:
        events.append(ev.HoldsReleased(now, topic.number, [seq]))
    block = _edited(topic, [job], command, [due], now)
    replaced = [(seq, _REPLACED)]
    events.append(ev.RecordsReplaced(now, topic.number, [block], None, replaced, topic.head))
    if seq in topic.queue.jobs and (job.state != "held" or command.retry):
        events.append(ev.JobsRescheduled(now, topic.number, [seq], [due]))
    was = job.state
    return Decision(events, AfterApply(lambda: cmd.EditResult(was, state_of(topic, seq))))


def _require_waiting(topic: QueueTopic, job: JobSummary) -> None:
    if job.state == "in_flight":
        raise JobInFlight(
            f"job {job.seq} of {quoted(topic.name)} is leased to {quoted(job.node)}: wait until it "
            "is given back, or end the lease first",
            {"topic": topic.name, "seq": job.seq, "deadline": job.deadline},
        )
    keys = topic.queue.keys
    if job.state == "held" and job.key and keys is not None:
        other = keys.holder(job.key)
        if other not in (None, job.seq):
            raise KeyConflict(
                f"job {other} has the key of the held job {job.seq}: cancel one of them first",
                {"key": blocks.read_string(job.key), "seq": other},
            )


def reprioritize(topic: QueueTopic, seqs: Sequence[int], priority: int, now: int) -> list[ev.Event]:
    """The events that give waiting or held jobs, ascending, another priority; they keep all else.

    Raises:
        StorageUnreadable: The disk does not give the data of one.
    """
    jobs = [job for seq in seqs if (job := describe_job(topic, seq)) and job.priority != priority]
    if not jobs:
        return []
    dues = [job.not_before if job.state == "delayed" else 0 for job in jobs]
    command = cmd.EditJob(topic.name, 0, priority=priority)
    block = _edited(topic, jobs, command, dues, now)
    replaced = [(job.seq, _REPLACED) for job in jobs]
    events: list[ev.Event] = [
        ev.RecordsReplaced(now, topic.number, [block], None, replaced, topic.head)
    ]
    known = topic.queue.jobs
    waiting = [at for at, job in enumerate(jobs) if job.seq in known and job.state != "held"]
    if waiting:
        again = [jobs[at].seq for at in waiting]
        events.append(ev.JobsRescheduled(now, topic.number, again, [dues[at] for at in waiting]))
    return events


def _edited(
    topic: QueueTopic,
    jobs: Sequence[JobSummary],
    command: cmd.EditJob,
    dues: Sequence[int],
    now: int,
) -> bytes:
    """The block with the content that some jobs are to have.

    Raises:
        RecordTooLarge: One is over the bound of a record.
    """
    rows = [_row(topic, job, command, due, now) for job, due in zip(jobs, dues, strict=True)]
    texts = [[texts[column] for texts, _ in rows] for column in blocks.TEXTS]
    numbers = {
        column: [found.get(column, 0) for _, found in rows]
        for column in range(blocks.DELAY, len(blocks.NUMBER_COLUMNS))
    }
    return blocks.pack(
        [column if any(column) else None for column in texts],
        seqs=[job.seq for job in jobs],
        ts=[job.ts for job in jobs],
        numbers={column: values for column, values in numbers.items() if any(values)},
    )


def _row(
    topic: QueueTopic, job: JobSummary, command: cmd.EditJob, due: int, now: int
) -> tuple[Sequence[bytes], dict[int, int]]:
    """The texts and the numbers that a job is to have.

    Raises:
        RecordTooLarge: It is over the bound of a record.
    """
    batch = topic.batch_of(job.seq)
    assert batch is not None, "a job that was described is live"
    view, index = blocks.BlockView(batch.block), batch.index_of(job.seq)
    data = job.data if command.data is None else command.data
    tag = job.tag if command.tag is None else command.tag
    meta = job.meta if command.meta is None else command.meta
    if len(data) + len(meta) > limits.RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"job {job.seq} would have {len(data) + len(meta)} bytes of data and meta; at most "
            f"{limits.RECORD_BYTES_MAX} are allowed"
        )
    end = expires_at(view, index, job.ts)
    numbers = {
        blocks.NOT_BEFORE: due,
        blocks.TTL: max(end - max(now, 1), 1) if end else 0,
        blocks.MAX_DELIVERIES: job.max_deliveries,
        blocks.UPDATED_AT: max(now, 1),
        blocks.PRIORITY: job.priority if command.priority is None else command.priority,
        blocks.UNIQUE: view.number(blocks.UNIQUE, index),
    }
    others = (view.text(column, index) for column in blocks.TEXTS[blocks.KEY :])
    return (data, tag, view.text(blocks.NODE, index), meta, *others), numbers
