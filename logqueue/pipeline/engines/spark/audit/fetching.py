"""The files of a log for an audit: directories as they are, a replica as a copy of its own.

Owns: that copy, for as long as it is looked at. Must not know: what is checked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from logqueue.extras import MissingExtra
from logqueue.pipeline.engines.spark.formats.log_files import named_places
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.progress import Note
from logqueue.pipeline.reading.options import listed_names
from logqueue.replica.object_store import StoreError
from logqueue.replica.opening import BadReplicaUrl, is_store_url, open_store
from logqueue.replica.reading import ReplicaUnreadable
from logqueue.replica.restoring import restore
from wal import OsFileSystem


@contextmanager
def directories_of(path: str, note: Note) -> Iterator[Sequence[str]]:
    """The directories that an option `path` names. A replica is fetched into a temporary one.

    Raises:
        PipelineError: The replica cannot be read, or it is damaged.
    """
    places = named_places(listed_names(path))
    if not any(map(is_store_url, places)):
        yield places
        return
    with tempfile.TemporaryDirectory(prefix="logqueue-audit-") as copy:
        note(f"fetching {places[0]}", 0.0)
        try:
            restore(open_store(places[0]), OsFileSystem(), copy)
        except (BadReplicaUrl, MissingExtra, ReplicaUnreadable, StoreError) as error:
            raise PipelineError(f"option path: {error}") from error
        yield [copy]
