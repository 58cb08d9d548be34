"""A replica as it is read: the manifest, sealed segments, chunks in order.

Owns: what a sound replica is (digests, the chain, the boundary of the collector), and reading again
what may be void. Must not know: what is in a frame, where what was read goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from logqueue.replica.chunk import Chunk
from logqueue.replica.manifest import ReplicaManifest, SegmentEntry, WriterHeartbeat
from logqueue.replica.object_store import ObjectStore


class ReplicaUnreadable(Exception):
    """A replica cannot be read; the message names it, and the object."""


class ReplicaMissing(ReplicaUnreadable):
    """There is no replica: no manifest."""


class ReplicaDamaged(ReplicaUnreadable):
    """An object is missing, changed, or of another log; the message names it."""


class ReadVoid(ReplicaUnreadable):
    """The collector has passed the place that was read from: start again from the manifest."""


class StoredManifest(NamedTuple):
    """A manifest, and the version to replace."""

    manifest: ReplicaManifest
    version: str


class ReplicaReader:
    """Reads one replica. Changes nothing."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        parallel: int = 1,
        tries: int = 5,
        pause: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Make a reader.

        Args:
            store: Where the replica is.
            parallel: How many objects are fetched at the same time, in threads; 1 for none.
            tries: How often a call is tried while the store is unavailable.
            pause: Waits between two tries, in seconds.
        """
        self.store = store
        self._parallel = parallel
        self._tries = tries
        self._pause = pause

    def manifest(self) -> StoredManifest:
        """The manifest as it is now.

        Raises:
            ReplicaMissing: There is none.
            ReplicaDamaged: It cannot be read.
            StoreError: The store cannot be read.
        """
        raise NotImplementedError

    def heartbeat(self) -> WriterHeartbeat | None:
        """The heartbeat as it is now; None when there is none that can be read.

        Raises:
            StoreError: The store cannot be read.
        """
        raise NotImplementedError

    def chunk(self, number: int) -> Chunk | None:
        """The chunk of a number, checked by itself; None when there is none.

        Raises:
            ReplicaDamaged: It is not sound.
            StoreError: The store cannot be read.
        """
        raise NotImplementedError

    def chunks(self, first: int, previous: str, *, to_the_end: bool = True) -> Iterator[Chunk]:
        """The chunks from a number on, in order, each checked against the digest before it, up to
        the first number that is not there.

        The last step checks that what was read is not void, so consume it to the end.

        Args:
            first: Number of the first.
            previous: Digest of the chunk before it; "" when there is none.
            to_the_end: Look whether there are chunks behind the first that is missing: a listing.

        Raises:
            ReplicaDamaged: One is not sound, or missing with others behind it.
            ReadVoid: The garbage boundary passed `first` meanwhile.
            StoreError: The store cannot be read.
        """
        raise NotImplementedError

    def segments(self, entries: Iterable[SegmentEntry]) -> Iterator[tuple[SegmentEntry, bytes]]:
        """Sealed segments, checked, in the order asked for.

        Raises:
            ReplicaDamaged: One is missing or not sound.
            ReadVoid: One is missing, and the manifest no longer lists it.
            StoreError: The store cannot be read.
        """
        raise NotImplementedError
