"""Deciding a redrive: dead letters go back to where they came from.

Owns: which dead letters are meant, and what a job that goes back looks like. Nothing here changes
the state.

Copies and removals are events of one decision, thus one frame of the log: through any crash a dead
letter is in exactly one of the two places, and a repeated call finds only what is still here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from logqueue.core import block as blocks
from logqueue.core import commands as cmd
from logqueue.core import events as ev
from logqueue.core.batch import Record
from logqueue.core.copies import as_many_as_fit, within_bytes
from logqueue.core.dead_letters import STAMP, STRAY_META
from logqueue.core.decision import Decision
from logqueue.core.in_line import InLine
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.core.writing import write
from logqueue.errors import InvalidRequest

_encoder = msgspec.json.Encoder()
_metas = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Selection(NamedTuple):
    """Dead letters that a call means: the first of them, and how many there are in all."""

    seqs: list[int]
    total: int


def redrive(state: State, command: cmd.Redrive, now: int) -> Decision:
    """Move dead letters back.

    Raises:
        TopicNotFound: The topic, or `to`, does not exist.
        InvalidRequest: `to` is the topic itself.
    """
    source = state.topic(command.topic)
    if command.to is not None:
        state.topic(command.to)
        if command.to == command.topic:
            raise InvalidRequest("`to` must name another topic than the one that is redriven")
    selection = _select(source, command)
    by_target: dict[str, list[int]] = {}
    for seq, _, texts in source.records(within_bytes(source, selection.seqs)):
        target = command.to or _origin(texts[blocks.META])
        leased = source.queue is not None and not source.queue.is_waiting(seq)
        if target is not None and target != source.name and not leased and target in state.topics:
            by_target.setdefault(target, []).append(seq)
    line = InLine(state)
    moved: list[int] = []
    targets: list[str] = []
    for target, seqs in by_target.items():
        copies = _Copies(state, source, state.topics[target], now, line)
        count, written = as_many_as_fit(seqs, copies.write)
        if count:
            moved.extend(seqs[:count])
            line.add(written)
            targets.append(target)
    if moved:
        line.add([ev.RecordsDeleted(now, source.number, sorted(moved), redriven=True)])
    skipped = len(selection.seqs) - len(moved)
    remaining = selection.total if command.dry_run else selection.total - len(moved)
    reply = cmd.Redriven(len(moved), skipped, remaining, targets)
    return Decision([] if command.dry_run else line.events, lambda: reply)


def _select(topic: Topic, command: cmd.Redrive) -> _Selection:
    """The dead letters that all filters let through, lowest seq first."""
    if command.seqs is not None:
        asked = sorted(set(command.seqs))
        found = [r[0] for r in topic.records(asked) if _is_meant(r, command)]
        return _Selection(found[: command.limit], len(found))
    if command.match is not None:
        tagged = topic.tagged(command.match)
        if command.before_seq is not None or command.reason is not None:
            tagged = [r[0] for r in topic.records(tagged) if _is_meant(r, command)]
        return _Selection(tagged[: command.limit], len(tagged))
    taken: list[int] = []
    total = 0
    for batch in topic.batches:
        if command.before_seq is not None and batch.first_seq >= command.before_seq:
            break
        indexes = list(batch.live_indexes())
        if command.reason is not None:
            indexes = [
                i for i, r in zip(indexes, batch.at(indexes), strict=True) if _is_meant(r, command)
            ]
        seqs = [batch.seq_at(i) for i in indexes]
        if command.before_seq is not None and batch.last_seq >= command.before_seq:
            seqs = [seq for seq in seqs if seq < command.before_seq]
        taken.extend(seqs[: command.limit - len(taken)])
        total += len(seqs)
    return _Selection(taken, total)


def _is_meant(record: Record, command: cmd.Redrive) -> bool:
    seq, _, texts = record
    if command.before_seq is not None and seq >= command.before_seq:
        return False
    if command.match is not None and not command.match.matches_fragment(texts[blocks.TAG]):
        return False
    return command.reason is None or _stamp(texts[blocks.META], "reason") == command.reason


def _stamp(meta: bytes, name: str) -> str | None:
    """What a stamp of a dead letter says."""
    if not meta.startswith(b"{") or (STAMP + name).encode() not in meta:
        return None
    value = _metas.decode(meta).get(STAMP + name)
    if value is None or not bytes(value).startswith(b'"'):
        return None
    return blocks.read_string(bytes(value))


def _origin(meta: bytes) -> str | None:
    return _stamp(meta, "from")


class _Copies:
    """Jobs made again of dead letters, for one target."""

    def __init__(self, state: State, source: Topic, target: Topic, now: int, line: InLine) -> None:
        self.state = state
        self.source = source
        self.target = target
        self.now = now
        self.line = line

    def write(self, seqs: Sequence[int]) -> list[ev.AnyEvent]:
        """The events that add some of them to the target.

        Raises:
            RecordTooLarge, TopicFull, Throttled: No room.
        """
        records = [*self.source.records(seqs)]
        columns = [[texts[c] for _, _, texts in records] for c in range(len(blocks.TEXT_COLUMNS))]
        metas = columns[blocks.META]
        columns[blocks.META] = [_unstamped(meta) for meta in metas]
        numbers = {}
        if self.target.queue is not None:
            columns.append(list(self._keys(metas)))
            bounds = [_bound(meta) for meta in metas]
            if any(bounds):
                numbers[blocks.MAX_DELIVERIES] = bounds
        block = blocks.pack([c if any(c) else None for c in columns], numbers=numbers)
        return self.line.behind(write(self.state, self.target, block, len(records), self.now))

    def _keys(self, metas: Sequence[bytes]) -> Iterator[bytes]:
        """Each job gets its key back, unless a waiting job or an earlier copy has it by now."""
        queue = self.target.queue
        assert queue is not None
        given: set[bytes] = set()
        for meta in metas:
            key = _stamp(meta, "key")
            fragment = b"" if key is None else blocks.write_string(key)
            taken = queue.keys is not None and queue.keys.find(fragment) is not None
            yield b"" if taken or fragment in given else fragment
            given.add(fragment)


def _bound(meta: bytes) -> int:
    given = _stamp(meta, "max_deliveries") or ""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0


def _unstamped(meta: bytes) -> bytes:
    """A meta as it was before the job died."""
    if not meta.startswith(b"{"):
        return meta
    keys = _metas.decode(meta)
    stray = keys.get(STRAY_META)
    if stray is not None:
        return bytes(stray)
    kept = {name: value for name, value in keys.items() if not name.startswith(STAMP)}
    return _encoder.encode(kept) if kept else b""
