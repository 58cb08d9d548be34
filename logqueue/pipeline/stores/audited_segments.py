"""The segments of a log, each for a task of an audit: files of directories, objects of a replica.

Owns: where each segment is read from. Must not know: what is checked, engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from logqueue.pipeline.audit.frames import AuditedSegment
from logqueue.pipeline.audit.log import SegmentSource, files_of
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.options import listed_names
from logqueue.pipeline.rows.fetching import SegmentGone
from logqueue.pipeline.stores.log_files import ReplicaFiles, named_places
from logqueue.replica.opening import is_store_url


@dataclass(frozen=True, slots=True)
class ReplicaSegment:
    """A segment in a replica.

    Attributes:
        replica: Fetches it.
        length, checksum: Bytes and crc32 that it must have.
    """

    file: AuditedSegment
    replica: ReplicaFiles
    length: int
    checksum: int

    def read(self) -> bytes:
        """See `SegmentSource`."""
        try:
            data = self.replica.fetch(self.file.log, self.file.id, self.length)
        except SegmentGone as gone:
            raise PipelineError(
                f"option path: {self.file.path} was deleted while the replica was read: try again"
            ) from gone
        if crc32(data) != self.checksum:
            raise PipelineError(f"option path: {self.file.path} is damaged: its checksum is wrong")
        return data


def segments_of(path: str) -> tuple[Sequence[SegmentSource], Sequence[str]]:
    """The segments that an option `path` names, and the places it names.

    Of a segment that is in several places the first one counts; directories come before replicas.

    Raises:
        PipelineError: A replica cannot be read.
    """
    places = named_places(listed_names(path))
    directories = [place for place in places if not is_store_url(place)]
    found: dict[tuple[str, int], SegmentSource] = {}
    for source in files_of(directories):
        found[source.file.log, source.file.id] = source
    for url in (place for place in places if is_store_url(place)):
        replica = ReplicaFiles(url)
        catalog = replica.catalog()
        for file in (*catalog.jobs, *catalog.leases):
            segment = AuditedSegment(file.log, file.segment, file.path)
            length, checksum = file.index.bytes, file.index.crc32
            other = ReplicaSegment(segment, replica, length, checksum)
            found.setdefault((file.log, file.segment), other)
    return [found[key] for key in sorted(found)], places
