"""What transactions of both logs say of one job: the steps of its life.

Owns: which events speak of a job, their entries, where its copies are, and what follows from them
(a lease that ran out). Must not know: files, where the transactions were found, the state.

Copies are found by what their meta says, so the order of a transaction's events does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from logqueue import events as ev
from logqueue.events.block import (
    DATA,
    DELAY,
    KEY,
    META,
    NODE,
    NOT_BEFORE,
    TAG,
    BlockView,
    read_string,
)
from logqueue.segments.index import LogName

ENDS: frozenset[str] = frozenset(
    ("acked", "rejected", "dropped", "expired", "superseded", "cancelled", "dead_lettered",
     "redriven", "deleted")
)  # fmt: skip
"""The steps that end a job."""

LEASE_STEPS: frozenset[str] = frozenset(
    ("claimed", "extended", "nack", "reject", "disconnect", "restart", "postponed", "delayed",
     "retried", "returned", "held",
     "released", "returned", "delayed", "retried")
)  # fmt: skip
"""The steps that the leases log tells of."""

Entry = dict[str, Any]

_metas = msgspec.json.Decoder(dict[str, msgspec.Raw])


class WrittenJob(msgspec.Struct, frozen=True):
    """A job as it was appended; fragments of JSON, b"" when absent."""

    ts: int
    data: bytes
    tag: bytes
    meta: bytes
    key: bytes


class JobTrail(ev.RecordVisitor):
    """Collects the steps of one job from transactions, in any order.

    Attributes:
        written: What was appended; None until that transaction is met.
        ended: How it ended, one of `ENDS`; "" while it has not, as far as is known.
        ended_at: When, ms since the epoch.
    """

    def __init__(
        self,
        topic: int,
        seq: int,
        name: str,
        name_of: Callable[[int], str | None],
        source_of: Callable[[int], int | None] = lambda router: None,
    ) -> None:
        """Nothing so far.

        Args:
            topic: Number of the queue's instance.
            seq: The job.
            name: Of the queue.
            name_of: The name of a topic instance, None when it is gone.
            source_of: The instance that a router copies from, None when it is gone.
        """
        self.written: WrittenJob | None = None
        self.ended = ""
        self.ended_at = 0
        self._topic = topic
        self._seq = seq
        self._name = name
        self._name_of = name_of
        self._source_of = source_of
        self._steps: dict[tuple[int, str], Entry] = {}
        self._in_both: set[tuple[int, str]] = set()
        # Of the transaction that is looked at.
        self._order = 0
        self._events: Sequence[ev.Event] = ()

    def note(self, transaction: ev.Transaction, log: LogName) -> bool:
        """Take what a transaction says of the job; whether it says anything.

        What both logs say is taken once.
        """
        self._order, self._events = transaction.order, transaction.events
        before = len(self._steps)
        for event in transaction.events:
            if event.topic != self._topic:
                continue
            if event.holds_records:
                event.visit_records(self)
            for change in event.job_changes():
                make = _STEPS.get(change.kind)
                if make is not None and self._seq in change.seqs:
                    entry = make(event, change, change.seqs.index(self._seq))
                    self._add(event, entry)
        return len(self._steps) > before

    def entries(self, is_in_flight: bool, now: int) -> list[Entry]:
        """All steps in their order, with those that follow from them.

        Args:
            is_in_flight: Whether the job is under a lease now.
            now: The clock.
        """
        ordered = [self._steps[place] for place in sorted(self._steps, key=_order_of)]
        found: list[Entry] = []
        lease: Entry | None = None
        deadline = 0
        for entry in ordered:
            step = entry["event"]
            has_lapsed = lease is not None and lease["at"] <= deadline < entry["at"]
            if lease is not None and has_lapsed and step != "extended":
                found.append(_lapsed(lease, deadline))
                lease = None
            found.append(entry)
            if step == "claimed":
                lease, deadline = entry, entry["deadline"]
            elif step == "extended":
                deadline = entry["deadline"]
            else:
                lease = None
        if lease is not None and not is_in_flight and not self.ended and deadline < now:
            found.append(_lapsed(lease, deadline))
        return found

    # -- records ---------------------------------------------------------------------------------

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        place = self._seq - first_seq
        if not 0 <= place < count:
            return
        view = BlockView(block)
        entry: Entry = {"at": event.at, "event": "appended"}
        node = view.text(NODE, place)
        if node:
            entry["node"] = read_string(node)
        delay = view.number(DELAY, place)
        due = event.at + delay if delay else view.number(NOT_BEFORE, place)
        if due > event.at:
            entry["not_before"] = due
        entry |= self._origin(event, first_seq, count)
        self._add(event, entry)
        self.written = WrittenJob(
            event.at,
            view.text(DATA, place),
            view.text(TAG, place),
            view.text(META, place),
            view.text(KEY, place),
        )

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        """See `RecordVisitor`."""
        place = self._seq - first_seq
        if 0 <= place < len(seqs):
            source = self._source_of(router)
            name = self._name_of(source) if source is not None else None
            entry: Entry = {"at": event.at, "event": "routed", "seq": seqs[place]}
            if name is not None:
                entry["topic"] = name
            self._add(event, entry)

    def committed(self, event: ev.Event, chunk: ev.ChunkKey, first_seq: int, count: int) -> None:
        """See `RecordVisitor`."""
        if first_seq <= self._seq < first_seq + count:
            self._add(event, {"at": event.at, "event": "appended", "producer": chunk[0]})

    # -- internals -------------------------------------------------------------------------------

    def _add(self, event: ev.Event, entry: Entry) -> None:
        step = entry["event"]
        if step in ENDS:
            self.ended, self.ended_at = step, event.at
            entry |= self._copy(event, step)
        if event.log == ev.BOTH:
            if (event.at, step) in self._in_both:
                return
            self._in_both.add((event.at, step))
        self._steps.setdefault((self._order, step), entry)

    def _origin(self, event: ev.Event, first_seq: int, count: int) -> Entry:
        """Where a redriven job came from, if this transaction says."""
        for other in self._events:
            for change in other.job_changes():
                if change.kind == "redriven" and other.topic != event.topic:
                    entry: Entry = {"reason": "redriven"}
                    name = self._name_of(other.topic)
                    if name is not None:
                        entry["topic"] = name
                    # Copies come in the order of the letters; several targets share the list.
                    if len(change.seqs) == count:
                        entry["seq"] = change.seqs[self._seq - first_seq]
                    return entry
        return {}

    def _copy(self, event: ev.Event, step: str) -> Entry:
        """Where the copy is that an end has left."""
        for other in self._events:
            if other.topic == self._topic or not other.holds_records:
                continue
            copies = _CopyFinder(self._name, self._seq)
            other.visit_records(copies)
            if copies.found:
                place = self._place(other.topic, copies.found)
                return place if copies.error is None else {**place, "error": copies.error}
        if step == "redriven":
            return self._redriven_to(event)
        return {}

    def _redriven_to(self, event: ev.Event) -> Entry:
        (change,) = (c for c in event.job_changes() if c.kind == "redriven")
        others = [e for e in self._events if e.topic != self._topic and e.holds_records]
        if len(others) != 1:
            return {}
        span = _AppendedSpan()
        others[0].visit_records(span)
        if span.count != len(change.seqs):
            return {}
        return self._place(others[0].topic, span.first + change.seqs.index(self._seq))

    def _place(self, topic: int, seq: int) -> Entry:
        name = self._name_of(topic)
        return {} if name is None else {"topic": name, "seq": seq}


class _CopyFinder(ev.RecordVisitor):
    """Finds the copy of a job by what its meta says."""

    def __init__(self, name: str, seq: int) -> None:
        self.found = 0
        self.error: str | None = None
        self._name = name
        self._needle = b'_src_seq":"%d"' % seq
        self._seq = seq

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        for place, meta in enumerate(BlockView(block).column(META) or ()):
            if self._needle in meta and copied_from(meta) == (self._name, self._seq):
                self.found = first_seq + place
                self.error = _error_in(meta)
                return


class _AppendedSpan(ev.RecordVisitor):
    """The seqs of an append."""

    first = count = 0

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        self.first, self.count = first_seq, count


def copied_from(meta: bytes) -> tuple[str, int] | None:
    """The queue and the seq that a dead letter or an archived job was, by its meta; None when it
    is neither."""
    if not meta.startswith(b"{") or b"_src_seq" not in meta:
        return None
    members = _metas.decode(meta)
    for source, seq in (
        ("$dead_letter_from", "$dead_letter_src_seq"),
        ("$archived_from", "$archived_src_seq"),
    ):
        if source in members and seq in members:
            name, number = bytes(members[source]), bytes(members[seq]).strip(b'"')
            if name.startswith(b'"') and number.isdigit():
                return read_string(name), int(number)
    return None


def _error_in(meta: bytes) -> str | None:
    """The last error that a dead letter has."""
    error = _metas.decode(meta).get("$dead_letter_error")
    text = bytes(error) if error is not None else b""
    return read_string(text) if text.startswith(b'"') else None


# -- entries ---------------------------------------------------------------------------------------


def _order_of(place: tuple[int, str]) -> tuple[int, bool]:
    """By transaction; what ends a job comes last."""
    order, step = place
    return order, step in ENDS


def _lapsed(lease: Entry, deadline: int) -> Entry:
    return {"at": deadline, "event": "lease_expired", "node": lease["node"]}


def _claimed(event: ev.Event, change: ev.JobChange, place: int) -> Entry:
    return {
        "at": event.at,
        "event": "claimed",
        "node": change.node,
        "deadline": change.deadline,
        "lease_id": f"lease_{change.first_lease + place:x}",
    }


def _extended(event: ev.Event, change: ev.JobChange, place: int) -> Entry:
    entry: Entry = {
        "at": event.at,
        "event": "extended",
        "node": change.node,
        "deadline": change.deadline,
    }
    if change.progress is not None:
        entry["progress"] = change.progress
    if change.note:
        entry["note"] = change.note
    return entry


def _released(event: ev.Event, change: ev.JobChange, place: int) -> Entry:
    entry: Entry = {"at": event.at, "event": change.reason, "node": change.node}
    if change.reason in ("delayed", "retried"):
        del entry["node"]
    if change.dues[place] > event.at:
        entry["not_before"] = change.dues[place]
    if change.error is not None:
        entry["error"] = change.error
    return entry


def _held(event: ev.Event, change: ev.JobChange, place: int) -> Entry:
    return {"at": event.at, "event": "held"}


def _unheld(event: ev.Event, change: ev.JobChange, place: int) -> Entry:
    return {"at": event.at, "event": "released"}


def _plain(event: ev.Event, change: ev.JobChange, place: int) -> Entry:
    entry: Entry = {"at": event.at, "event": change.kind}
    if change.node:
        entry["node"] = change.node
    if change.reason:
        entry["reason"] = change.reason
    return entry


_STEPS: dict[str, Callable[[ev.Event, ev.JobChange, int], Entry]] = {
    "claimed": _claimed,
    "extended": _extended,
    "released": _released,
    "held": _held,
    "unheld": _unheld,
    "replaced": _plain,
    **dict.fromkeys(ENDS, _plain),
}
"""The entry of each kind of change that is shown."""


def lease_steps(entries: Iterable[Entry]) -> list[Entry]:
    """Those that the leases log tells of."""
    return [entry for entry in entries if entry["event"] in LEASE_STEPS]
