"""The bytes that reads of a catalog ask for.

Owns: from a read to the bytes of its file. Must not know: what they say.
"""

from __future__ import annotations

from collections.abc import Callable

from logqueue.segments.catalog import Catalog, read_segment
from logqueue.segments.plan import SegmentRead


def bytes_of(catalog: Catalog, read: SegmentRead) -> bytes:
    """The bytes that a read asks for."""
    return read_segment(catalog.file(read.log, read.segment).path, read.bytes)


def source_of(catalog: Catalog) -> Callable[[int], bytes]:
    """Gives the bytes of a segment of the jobs log, for reads that need others than their own."""

    def fetch(segment: int) -> bytes:
        file = catalog.file("jobs", segment)
        return read_segment(file.path, file.index.bytes)

    return fetch
