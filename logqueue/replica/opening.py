"""From the URL of a replica to its object store.

Owns: which kinds of URLs there are, and what is said of a bad one. Must not know: what is stored.

| URL | Store |
|---|---|
| `file:///path` | a directory: a disk, or one mounted from elsewhere |
| `memory://name` | memory of this process: one store for each URL |
| `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` | an object store of a cloud |

Credentials, region and endpoint come from the usual environment variables (`AWS_…`, `GOOGLE_…`,
`AZURE_…`).
"""

from __future__ import annotations

from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectStore


class BadReplicaUrl(ValueError):
    """The URL names no object store; the message says what to write instead."""


_in_memory: dict[str, MemoryStore] = {}


def open_store(url: str) -> ObjectStore:
    """The object store of a URL. Nothing is read or written yet.

    Raises:
        BadReplicaUrl: It names none.
        MissingExtra: What reaches the store is not installed.
    """
    if url.startswith("memory://"):
        return _in_memory.setdefault(url, MemoryStore(url))
    raise BadReplicaUrl("not yet")
