"""Objects in memory: for trying things out, and beneath the store of simulations.

Owns: the objects. Must not know: faults, URLs of others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    StoredObject,
)


class _Held(NamedTuple):
    data: bytes
    version: str
    modified_ms: int


class MemoryStore:
    """An object store that ends with its process. May be used from any thread."""

    def __init__(
        self,
        url: str = "memory://",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Make an empty one.

        Args:
            url: Names it in messages.
            now_ms: The store's clock, ms since the epoch.
        """
        self._url = url
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._objects: dict[str, _Held] = {}
        self._versions = 0

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return self._url

    def create(self, key: str, data: bytes) -> str:
        """See ObjectStore."""
        with self._lock:
            if key in self._objects:
                raise ObjectExists(f"{self._url}/{key} is there already")
            return self._set(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        """See ObjectStore."""
        with self._lock:
            held = self._objects.get(key)
            if held is None or held.version != version:
                raise ObjectChanged(f"{self._url}/{key} has changed since it was read")
            return self._set(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore."""
        with self._lock:
            self._set(key, data)

    def get(self, key: str) -> StoredObject:
        """See ObjectStore."""
        with self._lock:
            held = self._find(key)
            return StoredObject(held.data, held.version)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        with self._lock:
            return self._find(key).data[start : start + length]

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        with self._lock:
            found = sorted(
                ObjectInfo(key, len(held.data), held.modified_ms)
                for key, held in self._objects.items()
                if key.startswith(prefix) and key > after
            )
        yield from found

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        for key in keys:
            with self._lock:
                self._objects.pop(key, None)

    def _find(self, key: str) -> _Held:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissing(f"{self._url}/{key} is not there") from None

    def _set(self, key: str, data: bytes) -> str:
        self._versions += 1
        version = str(self._versions)
        self._objects[key] = _Held(bytes(data), version, self._now_ms())
        return version
