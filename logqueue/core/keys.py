"""Which job has which key.

Owns: the index, and who wins when two jobs come to have one key. Must not know: states of jobs,
records, why a job comes back.

A job has its key while it waits, ready or delayed. One that is unique for longer has it until its
end: also while it is in flight or on hold, which is called busy here.
"""

from __future__ import annotations

from collections.abc import Callable

from logqueue.core.record_times import moment, seq_of

Lookup = Callable[[int], tuple[bytes, int, int]]
"""From a seq to its key (b"" when it has none), when its content was written, and for how long it
has the key: 0 while it waits."""


class WaitingKeys:
    """The keys of one queue's jobs.

    Attributes:
        superseded: Waiting jobs whose key another one has; they are to end.
    """

    __slots__ = ("_busy", "_lookup", "_waiting", "superseded")

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._waiting: dict[bytes, int] = {}
        self._busy: dict[bytes, int] = {}
        self.superseded: set[int] = set()

    def find(self, key: bytes) -> int | None:
        """Seq of the waiting job with a key."""
        found = self._waiting.get(key)
        return None if found is None else seq_of(found)

    def holder(self, key: bytes) -> int | None:
        """Seq of the job that has a key, waiting or busy."""
        found = self.find(key)
        return self._busy.get(key) if found is None else found

    @property
    def has_busy(self) -> bool:
        """Whether any busy job has its key."""
        return bool(self._busy)

    def busy(self) -> dict[bytes, int]:
        """Every key that a busy job has, with its seq."""
        return dict(self._busy)

    def items(self) -> list[tuple[bytes, int]]:
        """Every key with the seq that has it."""
        return [(key, seq_of(found)) for key, found in self._waiting.items()]

    def begin_waiting(self, seq: int) -> None:
        """A job is ready or delayed (again); of two with one key the one written last wins."""
        key, written_at, _ = self._lookup(seq)
        self.begin(seq, key, written_at)

    def begin(self, seq: int, key: bytes, written_at: int) -> None:
        """The same for a job whose key is at hand."""
        if not key:
            return
        busy = self._busy.get(key) if self._busy else None
        if busy == seq:
            del self._busy[key]
        elif busy is not None:
            # It is older: while the other one has the key, none is written.
            self.superseded.add(seq)
            return
        entry = moment(written_at, seq)
        other = self._waiting.get(key, 0)
        if other < entry:
            self._waiting[key] = entry
        if other and other != entry:
            self.superseded.add(seq_of(min(other, entry)))

    def end_waiting(self, seq: int) -> None:
        """A job is claimed or held."""
        key, _, unique = self._lookup(seq)
        self.end(seq, key)
        self.keep_busy(seq, key, unique)

    def keep_busy(self, seq: int, key: bytes, unique: int) -> None:
        """A job that does not wait has come; it has its key if it is unique for so long."""
        if key and unique:
            self._busy.setdefault(key, seq)

    def end(self, seq: int, key: bytes) -> None:
        """A job with this key no longer has it: its record is about to go, for instance."""
        self.superseded.discard(seq)
        if key and self.find(key) == seq:
            del self._waiting[key]
        if self._busy and self._busy.get(key) == seq:
            del self._busy[key]

    def release(self) -> list[dict[bytes, int]]:
        """What is large, to be freed bit by bit; the index must no longer be used."""
        return [self._waiting, self._busy]

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self._busy.clear()
        self.superseded.clear()
