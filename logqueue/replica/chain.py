"""The chain of chunks: where it ends, for the chain itself and for each log.

Owns: the structs, and how one more chunk moves them. Must not know: stores, files.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from logqueue.replica.chunk import Chunk, ChunkRun, LogName
from logqueue.replica.manifest import ReplicaManifest
from wal import HEADER_BYTES

LOGS: tuple[LogName, ...] = ("jobs", "leases")


class ChainBroken(Exception):
    """A chunk does not follow the one before it; the message says in what."""


class LogPlace(msgspec.Struct, frozen=True):
    """Where a log ends.

    Attributes:
        segment: Id of the segment that has the last frame.
        offset: Where in the segment file the next frame would begin, in bytes.
        frame: Number of the last frame.
    """

    segment: int
    offset: int
    frame: int


class ChainEnd(msgspec.Struct, frozen=True):
    """Where a chain of chunks ends, as far as it was read or written.

    Attributes:
        number: Of the last chunk; 0 when there is none.
        digest: Of that chunk, in hex; "" when there is none.
        places: Where each log ends; a log without frames is not in there.
        epoch: Of that chunk; 0 when that is not known.
    """

    number: int = 0
    digest: str = ""
    places: Mapping[LogName, LogPlace] = {}
    epoch: int = 0

    def frame(self, log: LogName) -> int:
        """Number of the last frame of a log; 0 when it has none."""
        place = self.places.get(log)
        return place.frame if place is not None else 0


def chain_start(manifest: ReplicaManifest) -> ChainEnd:
    """Before the chunks that a manifest says to begin with: the segments that it lists are there.

    The first chunks may have frames that these segments have, too: `extended` passes over them.
    """
    places: dict[LogName, LogPlace] = {}
    for entry in manifest.segments:
        places[entry.log] = LogPlace(entry.id, entry.bytes, entry.last)
    return ChainEnd(manifest.start_chunk - 1, manifest.start_digest, places)


def extended(end: ChainEnd, chunk: Chunk) -> ChainEnd:
    """The end of a chain with one more chunk.

    Raises:
        ChainBroken: The chunk does not follow.
    """
    header = chunk.header
    if header.number != end.number + 1:
        raise ChainBroken(f"it is chunk {header.number} where {end.number + 1} belongs")
    if header.previous != end.digest:
        raise ChainBroken("it follows another chunk than the one before it (by its digest)")
    if header.epoch < end.epoch:
        raise ChainBroken(f"it is of epoch {header.epoch}, after one of epoch {end.epoch}")
    places = dict(end.places)
    for run in header.runs:
        place = places.get(run.log)
        if place is None or run.last > place.frame or run.segment > place.segment:
            places[run.log] = _moved(place, run)
    return ChainEnd(header.number, chunk.digest, places, header.epoch)


def _moved(place: LogPlace | None, run: ChunkRun) -> LogPlace:
    begins_segment = run.offset == HEADER_BYTES and run.first == run.base
    if place is None:
        follows = begins_segment
    elif run.segment == place.segment:
        follows = (run.first, run.offset) == (place.frame + 1, place.offset)
    else:
        follows = begins_segment and run.segment > place.segment and run.first == place.frame + 1
    if not follows:
        at = f"frame {place.frame} of segment {place.segment}" if place else "nothing"
        raise ChainBroken(
            f"frame {run.first} of segment {run.segment} of the {run.log} log does not follow {at}"
        )
    return LogPlace(run.segment, run.offset + run.bytes, run.last)
