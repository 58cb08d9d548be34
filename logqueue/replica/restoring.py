"""A data directory made of a replica: as it is now, or as it was at a moment.

Owns: which objects that needs, where a cut is, and that a directory appears under its name only
when it is whole. Must not know: what the frames mean beyond their order and time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from logqueue.replica.object_store import ObjectStore
from wal import FileSystem


class Cut(NamedTuple):
    """Where to end; of what is None, anything goes.

    Attributes:
        at: Time of the last events to have, ms since the epoch.
        order: Number of the last transaction to have.
    """

    at: int | None = None
    order: int | None = None


class RestoreProgress(NamedTuple):
    """How far a restore has come, in bytes of segment files."""

    done: int
    total: int


class Restored(NamedTuple):
    """What a restore has made.

    Attributes:
        log_id: Identity of the jobs log, in hex.
        epoch: Of the manifest that was read.
        chunk: Number of the last chunk that was read; 0 for none.
        digest: Of that chunk; what its successor has as `previous`.
        bytes: Of all segment files.
        last_order: Number of the last transaction; 0 when it was not asked for (no cut).
        last_at: Time of the last event, ms since the epoch; 0 when it was not asked for.
    """

    log_id: str
    epoch: int
    chunk: int
    digest: str
    bytes: int
    last_order: int = 0
    last_at: int = 0


class RestoreRefused(Exception):
    """There are logs in that directory, or the replica does not reach back so far."""


def restore(
    store: ObjectStore,
    fs: FileSystem,
    directory: str,
    cut: Cut | None = None,
    *,
    progress: Callable[[RestoreProgress], None] = lambda progress: None,
    parallel: int = 8,
) -> Restored:
    """Make a data directory of a replica.

    Args:
        store: Where the replica is.
        fs: Where the directory is.
        directory: The data directory; it must have no logs.
        cut: Where to end; at the end of the replica by default.
        progress: Called now and then.
        parallel: How many objects are fetched at the same time.

    Raises:
        RestoreRefused: The directory has logs, or no moment so early is kept.
        ReplicaUnreadable: There is no replica, or it is damaged: the message names the object.
        StoreError: The store cannot be read.
        OSError: The directory cannot be written.
    """
    raise NotImplementedError
