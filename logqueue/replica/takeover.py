"""How a server becomes the writer of a replica.

Owns: making a new replica, and taking over one that is there. Must not know: what a writer does
then (writing.py), where the chunks that were read go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from logqueue.replica.chain import ChainEnd
from logqueue.replica.chunk import Chunk
from logqueue.replica.manifest import WriterInfo
from logqueue.replica.object_store import ObjectStore
from logqueue.replica.reading import StoredManifest


class TakeoverLost(Exception):
    """Another server took over meanwhile.

    Attributes:
        writer: That server; None when it is not known.
    """

    def __init__(self, writer: WriterInfo | None) -> None:
        super().__init__("another server took over the replica meanwhile")
        self.writer = writer


class Takeover(NamedTuple):
    """What a server has when it has become the writer.

    Attributes:
        stored: The manifest, with its epoch.
        end: The takeover chunk, and where each log ends in the replica.
    """

    stored: StoredManifest
    end: ChainEnd


def create_replica(
    store: ObjectStore, log_id: str, leases_id: str, writer: WriterInfo
) -> StoredManifest:
    """Make the manifest of a new replica. Its first writer takes over as any other does.

    Args:
        store: Where nothing is yet.
        log_id: Identity of the jobs log, in hex.
        leases_id: Identity of the leases log, in hex.
        writer: Who makes it.

    Raises:
        ObjectExists: There is a replica.
        StoreError: The store cannot be written. It may be there all the same.
    """
    raise NotImplementedError


def take_over(
    store: ObjectStore,
    writer: WriterInfo,
    known: ChainEnd | None,
    receive: Callable[[Sequence[Chunk]], None],
) -> Takeover:
    """Become the writer. From the end of it on, no other writer can commit anything.

    After any exception it can be called again, from the new `known`: a new epoch then begins.

    Args:
        store: Where the replica is.
        writer: Who takes over; a new id for each run of a server.
        known: The chunk up to which the caller has everything; None when it has the segments that
            the manifest lists, and no more.
        receive: Called with the chunks behind `known`, in order, when they are known to be true:
            before this writer can commit anything, the caller must have all of them, durably. What
            it raises ends the attempt.

    Raises:
        TakeoverLost: Another server was faster.
        ReadVoid: The chunk behind `known` was collected: begin again from the manifest.
        ReplicaUnreadable: The replica is missing or damaged.
        StoreError: The store cannot be read or written.
    """
    raise NotImplementedError
