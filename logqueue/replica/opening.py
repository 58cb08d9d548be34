"""From the URL of a replica to its object store.

Owns: which kinds of URLs there are, and the refusal of bad ones. Must not know: what is stored.

| URL | Store |
|---|---|
| `file:///path` | a directory: a disk, or one mounted from elsewhere |
| `memory://name` | memory of this process: one store for each URL |
| `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` | an object store of a cloud |

Credentials, region and endpoint come from the usual environment variables (`AWS_…`, `GOOGLE_…`,
`AZURE_…`).
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from logqueue.replica.directory_store import DirectoryStore
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Client

    from logqueue.replica.obstore_adapter import MakeClient

ALLOWED = "use file:///PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
_CLOUDS = ("s3", "gs", "az")
_PREFIX = re.compile(r"[A-Za-z0-9._/=+-]*\Z")


class BadReplicaUrl(ValueError):
    """The URL names no object store; the message says what to write instead."""


_in_memory: dict[str, MemoryStore] = {}
_in_memory_lock = threading.Lock()


def is_store_url(text: str) -> bool:
    """Whether a text is the URL of a store, well-formed or not, and not a path."""
    return "://" in text


def open_store(url: str) -> ObjectStore:
    """The object store of a URL. Nothing is read or written yet.

    Raises:
        BadReplicaUrl: It names none.
        MissingExtra: What reaches the store is not installed.
        StoreRefused: The settings of the environment are invalid.
    """
    scheme, place, path = _parts(url)
    if scheme == "file":
        return DirectoryStore(path)
    plain = f"{scheme}://{place}{path.rstrip('/')}"
    if scheme == "memory":
        with _in_memory_lock:
            return _in_memory.setdefault(plain, MemoryStore(plain))
    from logqueue.replica.obstore_adapter import ObstoreAdapter

    return ObstoreAdapter(plain, _maker(scheme, place, path.strip("/") or None))


def _parts(url: str) -> tuple[str, str, str]:
    """Scheme, what comes before the path, and the path.

    Raises:
        BadReplicaUrl: No store has such a URL.
    """
    if not is_store_url(url):
        absolute = os.path.abspath(url) if url else "/PATH"
        raise BadReplicaUrl(f"the URL of a replica has a scheme: file://{absolute}, or {ALLOWED}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadReplicaUrl(f"invalid URL of a replica ({error}): {ALLOWED}") from None
    scheme, place, path = parts.scheme, parts.netloc, parts.path
    if scheme not in ("file", "memory", *_CLOUDS):
        raise BadReplicaUrl(f"unknown kind of replica '{scheme}://': {ALLOWED}")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise BadReplicaUrl(
            "the URL of a replica has no '?' and no '#': region, endpoint and credentials come "
            "from environment variables"
        )
    if "@" in place:
        raise BadReplicaUrl(
            "the URL of a replica has no credentials: set them as environment variables"
        )
    if scheme == "file":
        if place not in ("", "localhost") or not path.strip("/"):
            raise BadReplicaUrl("a directory has three slashes and a path: file:///PATH")
        path = unquote(path)
        if "\0" in path:
            raise BadReplicaUrl("the path of a directory has a NUL: file:///PATH")
    elif scheme in _CLOUDS:
        if not place or ":" in place:
            what = "container" if scheme == "az" else "bucket"
            raise BadReplicaUrl(f"the {what} is missing: {ALLOWED}")
        if (
            not _PREFIX.match(path)
            or "//" in path
            or any(part in (".", "..") for part in path.split("/"))
        ):
            raise BadReplicaUrl(
                "the prefix of a replica is names of letters, digits and '._-=+' between single "
                f"slashes: {ALLOWED}"
            )
    return scheme, place, path


def _maker(scheme: str, place: str, prefix: str | None) -> MakeClient:
    from obstore.store import AzureStore, GCSStore, S3Store

    def make(*, client_options: ClientConfig, retry_config: RetryConfig) -> Client:
        if scheme == "s3":
            return S3Store(
                place, prefix=prefix, client_options=client_options, retry_config=retry_config
            )
        if scheme == "gs":
            return GCSStore(
                place, prefix=prefix, client_options=client_options, retry_config=retry_config
            )
        return AzureStore(
            place, prefix=prefix, client_options=client_options, retry_config=retry_config
        )

    return make
