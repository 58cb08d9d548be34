"""The rules about schedules and batches of jobs.

Owns: what their history means, as findings. Must not know: engines, files.

What a topic in memory only was sent is not in the log, and is not missed. Members of a batch that
came by a transactional append or by a router are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np

from logqueue.errors import quoted
from logqueue.pipeline.audit.findings import FINDINGS_PER_RULE_MAX, Finding, Rule
from logqueue.pipeline.audit.history import Instance
from logqueue.pipeline.audit.job_rows import Ints
from logqueue.pipeline.audit.plan_history import BatchLife, NotedFiring, PlanHistory
from logqueue.pipeline.audit.queue_events import FOREVER, QueueEvents

FIRED_ONCE, FIRED_JOB = "schedule_once", "schedule_job"
CALLBACK, ENDED = "batch_callback", "batch_ended"
RULES: Final = (
    Rule(FIRED_ONCE, "a schedule fires each of its times once"),
    Rule(FIRED_JOB, "a firing writes one job in the same transaction, or says why it wrote none"),
    Rule(CALLBACK, "a batch ends once, and its callback is written once with its end"),
    Rule(ENDED, "a batch ends when it is closed and all its jobs have ended"),
)

Instances = Mapping[int, Instance]
Covers = Callable[[str], bool]


def findings(history: PlanHistory, instances: Instances, covers: Covers) -> Iterator[Finding]:
    """What the history itself tells of these rules.

    Args:
        history: Of schedules and batches.
        instances: By number.
        covers: Whether a topic is part of the audit.
    """
    for name, firing, order in history.repeated:
        text = f"schedule {quoted(name)} fired again for {_time(firing.scheduled_for)}"
        yield from _fired(FIRED_ONCE, text, name, firing, order, instances, covers)
    for name, firing, order in history.unlike:
        inst = instances.get(firing.topic)
        if inst is not None and not inst.was_in_memory:
            text = (
                f"schedule {quoted(name)} fired for {_time(firing.scheduled_for)} with the result "
                f"`{firing.result}`, and {firing.written} jobs were appended with it"
            )
            yield from _fired(FIRED_JOB, text, name, firing, order, instances, covers)
    for batch, order in history.twice:
        yield _of_batch(CALLBACK, f"batch {quoted(batch.name)} ended again", batch, order)
    for batch, order in history.early:
        text = f"batch {quoted(batch.name)} ended before it was closed"
        yield _of_batch(ENDED, text, batch, order)
    for batch, joined, done, written, order in history.ends:
        yield from _callback(batch, joined - done, written, order, instances, covers)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _fired(
    rule: str, text: str, name: str, firing: NotedFiring, order: int, instances: Instances,
    covers: Covers,
) -> Iterator[Finding]:  # fmt: skip
    inst = instances.get(firing.topic)
    if inst is None or covers(inst.name):
        seq = firing.seq or None
        evidence = {"order": order, "schedule": name, "scheduled_for_ms": firing.scheduled_for}
        topic = inst.name if inst is not None else None
        yield Finding(rule, "error", topic, seq, seq, text, evidence)


def _of_batch(rule: str, text: str, batch: BatchLife, order: int) -> Finding:
    evidence = {"order": order, "batch": batch.name}
    return Finding(rule, "error", None, None, None, text, evidence)


def _callback(
    batch: BatchLife, failed: int, written: Mapping[int, int], order: int, instances: Instances,
    covers: Covers,
) -> Iterator[Finding]:  # fmt: skip
    if batch.callbacks is None:
        return
    on_done, on_problem = batch.callbacks
    wanted = on_problem if failed and on_problem else on_done
    known = [inst for inst in instances.values() if inst.name == wanted]
    if wanted and (not covers(wanted) or any(inst.was_in_memory for inst in known)):
        return
    copies = sum(count for number, count in written.items())
    right = sum(written.get(inst.number, 0) for inst in known)
    if (copies, right) != ((1, 1) if wanted else (0, 0)):
        text = (
            f"batch {quoted(batch.name)} ended, and {copies} records were written with its end"
            + (f", {right} of them to {quoted(wanted)}" if wanted else ", which has no callback")
        )
        yield _of_batch(CALLBACK, text, batch, order)


# -- members ---------------------------------------------------------------------------------------


class Joined(NamedTuple):
    """Jobs of one queue that joined a batch which has ended."""

    batch: BatchLife
    order: int
    seqs: Sequence[int]


def members(history: PlanHistory, instances: Instances, covers: Covers) -> dict[str, list[Joined]]:
    """By log_id, the jobs that were in batches which have ended."""
    found: dict[str, list[Joined]] = {}
    for batch in history.batches:
        if batch.ended is None:
            continue
        for number, parts in batch.joined.items():
            inst = instances.get(number)
            if inst is not None and not inst.was_in_memory and covers(inst.name):
                joined = (Joined(batch, order, seqs) for order, seqs in parts)
                found.setdefault(inst.log_id, []).extend(joined)
    return found


def member_findings(
    inst: Instance, joined: Sequence[Joined], events: QueueEvents
) -> Iterator[Finding]:
    """Jobs that were left when their batch ended, or joined it after that.

    Args:
        inst: The queue.
        joined: Of this queue.
        events: What happened to its jobs.
    """
    if not joined:
        return
    lengths = [len(part.seqs) for part in joined]
    seqs: Ints = np.concatenate([np.array(part.seqs, np.int64) for part in joined])
    orders = np.repeat(np.array([part.order for part in joined], np.int64), lengths)
    ended = np.repeat(np.array([part.batch.ended for part in joined], np.int64), lengths)
    parts = np.repeat(np.arange(len(joined)), lengths)
    left = np.minimum(events.ends_of(seqs), events.replaced_after(seqs, orders))
    wrong = np.flatnonzero(left > ended)
    for place in wrong[:FINDINGS_PER_RULE_MAX].tolist():
        batch, seq, order = joined[parts[place]].batch, int(seqs[place]), int(ended[place])
        until = int(left[place])
        text = f"batch {quoted(batch.name)} ended while job {seq} was left"
        if orders[place] > order:
            text = f"job {seq} joined batch {quoted(batch.name)} after its end"
        evidence = {"order": order, "batch": batch.name, "left_until": until}
        if until == FOREVER:
            del evidence["left_until"]
        yield Finding(ENDED, "error", inst.name, seq, seq, text, evidence)
