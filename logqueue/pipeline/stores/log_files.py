"""Where the files of a log are: in directories, in a replica, or in both together.

Owns: the places that the option `path` names, and what errors say. Must not know: engines, what
is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
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
from logqueue.segments.catalog import Catalog, CatalogError, merged, open_catalog, read_segment
from logqueue.segments.index import LogName, SegmentDamaged


class _SegmentSource(Protocol):
    """Some segments of one log. Picklable; keeps nothing open."""

    def catalog(self) -> Catalog: ...

    def fetch(self, log: str, segment: int, length: int) -> bytes: ...


class LogFiles:
    """The segments of one log, wherever they are. Picklable; keeps nothing open."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Nothing is read yet.

        Args:
            paths: Directories, and URLs of replicas.
        """
        places = named_places(paths)
        directories = [place for place in places if not is_store_url(place)]
        # What is near comes first.
        self._places: list[_SegmentSource] = [DirectoryFiles(directories)] if directories else []
        self._places += [ReplicaFiles(place) for place in places if is_store_url(place)]

    def catalog(self) -> Catalog:
        """What is there now.

        Raises:
            PipelineError: There is no log, or one that is damaged or cannot be read.
        """
        try:
            return merged([place.catalog() for place in self._places])
        except CatalogError as error:
            raise PipelineError(f"option path: {error}") from error

    def fetch(self, log: str, segment: int, length: int) -> bytes:
        """The first bytes of a segment.

        Raises:
            SegmentGone: It is not there.
            PipelineError: It cannot be read.
        """
        for place in self._places:
            with suppress(SegmentGone):
                return place.fetch(log, segment, length)
        raise SegmentGone(f"{log}-{segment}")


def named_places(paths: Sequence[str]) -> Sequence[str]:
    """Directories as plain paths, however they are written, and URLs of replicas."""
    return [_without_scheme(path) for path in paths]


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
