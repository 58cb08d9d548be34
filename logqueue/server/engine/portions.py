"""Commands that may touch any number of records, carried out in portions.

Owns: what the portions of such a command are, and what they come to together. Each portion is one
decision of its own, bounded in records and bytes; others are served in between. Must not know:
asyncio, who runs the next portion and when.

A crash half-way leaves the portions that are in the log. So all of these commands can be repeated:
a repeat finds what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from logqueue.core import commands as cmd
from logqueue.core.decide.redrive import parts_to_redrive
from logqueue.core.selection import matching_parts, parts_in_state
from logqueue.core.topic import Topic
from logqueue.model import limits
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Executed

R = TypeVar("R")

Portions = Generator["Executed[Any] | None", None, "Executed[R]"]
"""Yields after each bounded step, with what a portion changed; returns the whole outcome."""


def portions(engine: Engine, command: cmd.Command[R]) -> Portions[R]:
    """Carry out a command in portions.

    Raises:
        LogqueueError: Refused; what earlier portions have done stays done.
    """
    written = durable = 0
    steps = _PORTIONS[type(command)](engine, command)
    while True:
        try:
            part = next(steps)
        except StopIteration as end:
            whole: Executed[R] = end.value
            return whole._replace(
                written=max(written, whole.written), durable=max(durable, whole.durable)
            )
        if part is not None:
            written, durable = max(written, part.written), max(durable, part.durable)
        yield part


def has_portions(engine: Engine, command: cmd.Command[Any]) -> bool:
    """Whether a command is carried out in portions: by its type, or for what it leaves behind."""
    if isinstance(command, (cmd.AckJobs, cmd.RejectJobs)):
        return _leaves_copies(engine, command)
    return type(command) in _PORTIONS


def _delete(engine: Engine, command: cmd.DeleteRecords) -> Portions[cmd.RemoveResult]:
    topic = engine.topic_now(command.topic)
    before = topic.head + 1
    if command.before_seq is not None:
        before = min(before, command.before_seq)
    deleted = 0
    for part in matching_parts(topic, command.match, before):
        rest: Sequence[int] = part
        while rest:
            if not _is_there(engine, topic):
                break
            outcome = engine.execute(cmd.RemoveRecords(topic.name, rest, command.match))
            removed = outcome.result
            deleted += removed.deleted
            rest = removed.rest
            yield outcome
        else:
            yield None
            continue
        break
    return _whole(
        engine,
        topic,
        cmd.RemoveResult(deleted, topic.earliest_seq, topic.head, topic.live, topic.live_bytes),
    )


def _purge(engine: Engine, command: cmd.Purge) -> Portions[cmd.PurgeResult]:
    topic = engine.queue_now(command.topic)
    before = topic.head + 1
    counts: Counter[cmd.JobState] = Counter(dict.fromkeys(sorted(command.states), 0))
    # A job is purged in any of the given states: jobs move from one to the other
    # meanwhile.
    for wanted in sorted(command.states):
        for part in parts_in_state(topic, wanted, before):
            rest: Sequence[int] = part
            while rest and _is_there(engine, topic):
                outcome = engine.execute(cmd.PurgeJobs(topic.name, rest, command.states))
                purged = outcome.result
                counts.update(purged.counts)
                rest = purged.rest
                yield outcome
    return _whole(engine, topic, cmd.PurgeResult(dict(counts)))


def _redrive(engine: Engine, command: cmd.Redrive) -> Portions[cmd.RedriveResult]:
    # Refused now, if it is.
    engine.execute(cmd.RedriveLetters(command.topic, (), command))
    topic = engine.topic_now(command.topic)
    selected: list[int] = []
    total = 0
    for part in parts_to_redrive(topic, command):
        selected.extend(part[: command.limit - len(selected)])
        total += len(part)
        yield None
    selected.sort()
    if command.check_target is not None and not command.dry_run:
        # All targets are known to be allowed before the first letter moves.
        yield from _move_letters(engine, topic, selected, replace(command, dry_run=True))
    moved, skipped, targets = yield from _move_letters(engine, topic, selected, command)
    left = total if command.dry_run else total - moved
    return _whole(engine, topic, cmd.RedriveResult(moved, skipped, left, targets))


def _move_letters(
    engine: Engine, topic: Topic, seqs: Sequence[int], command: cmd.Redrive
) -> Generator[Executed[Any] | None, None, tuple[int, int, list[str]]]:
    moved = skipped = 0
    targets: dict[str, None] = {}
    for start in range(0, len(seqs), limits.COPIED_PER_PASS_MAX):
        rest = seqs[start : start + limits.COPIED_PER_PASS_MAX]
        while rest and _is_there(engine, topic):
            outcome = engine.execute(cmd.RedriveLetters(topic.name, rest, command))
            redriven = outcome.result
            moved += redriven.redriven
            skipped += redriven.skipped
            targets.update(dict.fromkeys(redriven.targets))
            rest = redriven.rest
            yield outcome
    return moved, skipped, [*targets]


def _settle(engine: Engine, command: cmd.AckJobs | cmd.RejectJobs) -> Portions[cmd.SettleResult]:
    """Jobs that leave copies somewhere: as many at a time as one transaction may copy."""
    settled = ready = in_flight = 0
    skipped: list[int] = []
    for first, stop in _spans(engine.state.topic(command.topic), command.seqs):
        outcome = engine.execute(_part(command, first, stop))
        part = outcome.result
        settled += part.settled
        skipped += part.skipped
        ready, in_flight = part.ready, part.in_flight
        if stop < len(command.seqs):
            yield outcome
    return outcome._replace(result=cmd.SettleResult(settled, skipped, ready, in_flight))


def _leaves_copies(engine: Engine, command: cmd.AckJobs | cmd.RejectJobs) -> bool:
    topic: Topic | None = engine.state.topics.get(command.topic)
    if topic is None or (isinstance(command, cmd.AckJobs) and command.append):
        # What is written with an ack is one transaction with it.
        return False
    config = topic.config
    if config.archive is not None:
        return True
    if isinstance(command, cmd.AckJobs):
        return topic.has_steps and any(map(topic.follow_of, command.seqs))
    return config.dead_letter is not None


def _part(
    command: cmd.AckJobs | cmd.RejectJobs, first: int, stop: int
) -> cmd.AckJobs | cmd.RejectJobs:
    seqs = command.seqs[first:stop]
    tokens = command.tokens[first:stop] if command.tokens is not None else None
    if isinstance(command, cmd.AckJobs):
        results = command.results[first:stop] if command.results is not None else None
        return replace(command, seqs=seqs, tokens=tokens, results=results)
    return replace(command, seqs=seqs, tokens=tokens)


def _spans(topic: Topic, seqs: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Neighbouring places of what is settled that one transaction may copy."""
    first = size = 0
    for place, seq in enumerate(seqs):
        batch = topic.batch_of(seq)
        added = batch.size_of(seq) if batch is not None else 0
        if topic.has_steps:
            added += len(topic.follow_of(seq))
        full = place - first == limits.COPIED_PER_PASS_MAX or size + added > limits.COPIED_BYTES_MAX
        if full and place > first:
            yield first, place
            first, size = place, 0
        size += added
    yield first, len(seqs)


def _is_there(engine: Engine, topic: Topic) -> bool:
    """Whether it has not been deleted since the last portion."""
    return engine.state.topics.get(topic.name) is topic


def _whole(engine: Engine, topic: Topic, result: R) -> Executed[R]:
    """What all portions together come to. The last of them has raised the topic's marks."""
    if not _is_there(engine, topic):
        return Executed(result, topic.mark_written, max(topic.mark_durable, engine.control_mark))
    return Executed(result, topic.mark_written, topic.mark_durable, (topic,))


_PORTIONS: dict[type[Any], Callable[[Engine, Any], Portions[Any]]] = {
    cmd.DeleteRecords: _delete,
    cmd.Purge: _purge,
    cmd.Redrive: _redrive,
    cmd.AckJobs: _settle,
    cmd.RejectJobs: _settle,
}
