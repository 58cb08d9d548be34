"""Where `logqueue-wal` finds a log: in directories, or in a replica.

Owns: the choice by the option `path`, and what errors say. Must not know: Spark, what is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import unquote, urlsplit

from logqueue.extras import MissingExtra
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.rows.fetching import SegmentGone
from logqueue.replica.catalog import ReplicaSegments, SegmentCollected
from logqueue.replica.manifest import MANIFEST_KEY
from logqueue.replica.object_store import StoreError
from logqueue.replica.opening import BadReplicaUrl, is_store_url
from logqueue.replica.reading import ReplicaUnreadable
from logqueue.segments.catalog import Catalog, CatalogError, open_catalog, read_segment
from logqueue.segments.index import LogName, SegmentDamaged


class LogFiles(Protocol):
    """The segments of one log. Picklable; keeps nothing open."""

    def catalog(self) -> Catalog:
        """What is there now.

        Raises:
            PipelineError: There is no log, or one that is damaged or cannot be read.
        """
        ...

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """The first bytes of a segment.

        Raises:
            SegmentGone: It is not there.
            PipelineError: It cannot be read.
        """
        ...


def log_files(paths: Sequence[str]) -> LogFiles:
    """The log that the option `path` names.

    Raises:
        PipelineError: A replica is named together with something else.
    """
    places = named_places(paths)
    return ReplicaFiles(places[0]) if is_store_url(places[0]) else DirectoryFiles(places)


def named_places(paths: Sequence[str]) -> Sequence[str]:
    """Directories as plain paths, however they are written; or the URL of one replica.

    Raises:
        PipelineError: A replica is named together with something else.
    """
    places = [_without_scheme(path) for path in paths]
    urls = [place for place in places if is_store_url(place)]
    if urls and len(places) > 1:
        raise PipelineError(
            f"option path: {urls[0]} is a replica, which has all of its log: name it alone"
        )
    return places


def _without_scheme(path: str) -> str:
    parts = urlsplit(path)
    if parts.scheme != "file":
        return path
    directory = unquote(parts.path)
    return f"file://{parts.path}" if (Path(directory) / MANIFEST_KEY).exists() else directory


class DirectoryFiles:
    """Data directories, archives, copies of them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def catalog(self) -> Catalog:
        """See `LogFiles`."""
        try:
            return open_catalog(self._paths)
        except CatalogError as error:
            raise PipelineError(f"option path: {error}") from error
        except SegmentDamaged as error:
            raise PipelineError(f"{error}; a copy in an archive or a backup can be read") from error
        except OSError as error:
            raise PipelineError(
                f"option path: {error.filename} cannot be read: {error.strerror}"
            ) from error

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """See `LogFiles`; from the directory that has it."""
        for path in self._paths:
            name = f"{segment:020d}.wal"
            for place in (os.path.join(path, log, name), os.path.join(path, name)):
                try:
                    return read_segment(place, length)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except SegmentDamaged:
                    # Shorter: a copy from before it was sealed.
                    continue
                except OSError as error:
                    raise PipelineError(f"{place} cannot be read: {error.strerror}") from error
        raise SegmentGone(f"{log}-{segment}")


class ReplicaFiles:
    """A replica in object storage."""

    def __init__(self, url: str) -> None:
        self._segments = ReplicaSegments(url)

    def catalog(self) -> Catalog:
        """See `LogFiles`."""
        try:
            return self._segments.catalog()
        except (BadReplicaUrl, MissingExtra, ReplicaUnreadable, StoreError) as error:
            raise PipelineError(f"option path: {error}") from error

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """See `LogFiles`."""
        try:
            return self._segments.fetch(cast(LogName, log), segment, length)
        except SegmentCollected as error:
            raise SegmentGone(str(error)) from error
        except (MissingExtra, ReplicaUnreadable, StoreError) as error:
            raise PipelineError(str(error)) from error
