"""From what users write to where files are.

Owns: which places there are, and the refusal of others. Must not know: what files hold.

| Place | |
|---|---|
| `dir`, `/path/dir`, `file:/path/dir`, `file:///path/dir` | a local or mounted directory |
| `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` | an object store |
| `hdfs://name/path`, `viewfs://…`, `abfss://…`, … | Hadoop's: read, where Spark runs the job |
| `memory://name` | memory of this process, for tests |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.directory_tree import DirectoryTree
from logqueue.pipeline.storage.tree import FileTree

ALLOWED: Final = "use a directory, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
BUCKETS: Final = ("s3", "gs", "az", "memory")
HADOOP: Final = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "abfs", "abfss", "s3a", "ofs", "o3fs")
"""Schemes that Hadoop's file systems have: only Spark reaches them."""

# A scheme as in a URL; `C:\` is none, and `s3:/x` is a mistake rather than a directory `s3:`.
_SCHEME: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)")


_hadoop: list[Callable[[str], FileTree]] = []


def reach_hadoop(opener: Callable[[str], FileTree]) -> None:
    """Have URLs of Hadoop's file systems opened by an engine that reaches them."""
    _hadoop[:] = [opener]


def is_hadoop(place: str) -> bool:
    """Whether a text is the URL of one of Hadoop's file systems."""
    found = _SCHEME.match(place)
    return found is not None and bool(found["slashes"]) and found["name"].lower() in HADOOP


def open_tree(place: str) -> FileTree:
    """The files at a place.

    Raises:
        PipelineError: There is no such kind of place, or what reaches it is not installed.
    """
    found = _SCHEME.match(place)
    if not place or "\0" in place:
        raise PipelineError(f"{quoted(place)} is not a place for files: {ALLOWED}")
    if found is None or not found["slashes"]:
        # Names with a colon, such as `a:b`, are directories.
        if found is not None and found["name"].lower() in (*BUCKETS, *HADOOP):
            raise PipelineError(f"{quoted(place)} is not a URL: {ALLOWED}")
        return DirectoryTree(place)
    scheme = found["name"].lower()
    if scheme == "file":
        rest = place[found.end("name") + 1 :]
        # file:/path, file:///path, file://localhost/path
        path = re.sub(r"^//(localhost)?(?=/)", "", rest)
        if not path.startswith("/") or path.startswith("//"):
            raise PipelineError(f"{quoted(place)} names another host: write file:///PATH")
        return DirectoryTree(path)
    if scheme in BUCKETS and found["slashes"] == "//":
        # Imported when it is used: directories are read without what reaches object stores.
        from logqueue.pipeline.storage.bucket_tree import BucketTree

        return BucketTree(place)
    if scheme in HADOOP:
        if not _hadoop:
            raise PipelineError(
                f"{quoted(place)} is reached by Spark alone, to read: use --engine spark; "
                f"elsewhere {ALLOWED}"
            )
        return _hadoop[0](place)
    raise PipelineError(f"{quoted(place)} is not a place this command knows: {ALLOWED}")


def is_url(place: str) -> bool:
    """Whether a text names a place that is not a directory of this machine."""
    found = _SCHEME.match(place)
    return found is not None and bool(found["slashes"]) and found["name"].lower() != "file"
