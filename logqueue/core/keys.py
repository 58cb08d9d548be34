"""Which waiting job has which key.

Owns: the index, and who wins when two waiting jobs come to have one key. Must not know: states of
jobs, records, why a job comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from logqueue.core.record_times import moment, seq_of

Lookup = Callable[[int], tuple[bytes, int]]
"""From a seq to its key (b"" when it has none) and when its content was written."""


class WaitingKeys:
    """The keys of one queue's waiting jobs. A job in flight or held is not in it.

    Attributes:
        superseded: Waiting jobs whose key a newer waiting job has; they are to end.
    """

    __slots__ = ("_lookup", "_waiting", "superseded")

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._waiting: dict[bytes, int] = {}
        self.superseded: set[int] = set()

    def find(self, key: bytes) -> int | None:
        """Seq of the waiting job with a key."""
        found = self._waiting.get(key)
        return None if found is None else seq_of(found)

    def items(self) -> list[tuple[bytes, int]]:
        """Every key with the seq that has it."""
        return [(key, seq_of(found)) for key, found in self._waiting.items()]

    def begin_waiting(self, seq: int) -> None:
        """A job is ready or delayed (again); of two with one key the one written last wins."""
        self.begin(seq, *self._lookup(seq))

    def begin(self, seq: int, key: bytes, written_at: int) -> None:
        """The same for a job whose key is at hand."""
        if not key:
            return
        entry = moment(written_at, seq)
        other = self._waiting.get(key, 0)
        if other < entry:
            self._waiting[key] = entry
        if other and other != entry:
            self.superseded.add(seq_of(min(other, entry)))

    def end_waiting(self, seq: int) -> None:
        """A job is claimed or held, or its record is about to go."""
        self.end(seq, self._lookup(seq)[0])

    def end(self, seq: int, key: bytes) -> None:
        """The same for a job whose key is at hand."""
        self.superseded.discard(seq)
        if key and self.find(key) == seq:
            del self._waiting[key]

    def release(self) -> dict[bytes, int]:
        """What is large, to be freed bit by bit; the index must no longer be used."""
        return self._waiting

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self.superseded.clear()
