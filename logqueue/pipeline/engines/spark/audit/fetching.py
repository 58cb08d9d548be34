"""The files of a log for an audit: directories as they are, a replica as a copy of its own.

Owns: that copy, for as long as it is looked at. Must not know: what is checked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note
from logqueue.pipeline.reading.options import listed_names
from logqueue.pipeline.rows.fetching import SegmentGone
from logqueue.pipeline.stores.log_files import ReplicaFiles, named_places
from logqueue.replica.opening import is_store_url
from logqueue.segments.catalog import LOGS
from wal import segment_path


@contextmanager
def directories_of(path: str, note: Note) -> Iterator[Sequence[str]]:
    """The directories that an option `path` names. A replica is fetched into a temporary one, with
    all the history that it has.

    Raises:
        PipelineError: The replica cannot be read, or it is damaged.
    """
    places = named_places(listed_names(path))
    urls = [place for place in places if is_store_url(place)]
    with ExitStack() as copies:
        directories = [place for place in places if not is_store_url(place)]
        for url in urls:
            copy = copies.enter_context(tempfile.TemporaryDirectory(prefix="logqueue-audit-"))
            _fetch(url, Path(copy), note)
            directories.append(copy)
        yield directories


def _fetch(url: str, directory: Path, note: Note) -> None:
    replica = ReplicaFiles(url)
    note(f"fetching {url}", 0.0)
    catalog = replica.catalog()
    files = [*catalog.jobs, *catalog.leases]
    for log in LOGS:
        (directory / log).mkdir()
    for count, file in enumerate(files, 1):
        try:
            data = replica.fetch(file.log, file.segment, file.index.bytes)
        except SegmentGone as gone:
            raise PipelineError(
                f"option path: {file.path} was deleted while the replica was fetched: try again"
            ) from gone
        if crc32(data) != file.index.crc32:
            raise PipelineError(f"option path: {file.path} is damaged: its checksum is wrong")
        Path(segment_path(str(directory / file.log), file.segment)).write_bytes(data)
        note(f"fetching {url}", count / len(files))
