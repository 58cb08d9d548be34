"""The seam to object storage: what a replica needs of a store, and how a store may fail.

Owns: the protocol `ObjectStore` and its errors. Must not know: which stores there are, what the
objects mean.

Every store that is used here reads its own writes and lists what is there, and creates and replaces
on condition. Calls block; they may come from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol


class StoreError(Exception):
    """A call to an object store failed. The message names the store and the object."""


class ObjectMissing(StoreError):
    """There is no such object."""


class ObjectExists(StoreError):
    """An object of that key is there already, and this reply wrote nothing.

    Where something between the caller and the store repeats requests, it may be the object of this
    very call: a caller that must know reads it.
    """


class ObjectChanged(StoreError):
    """The object is no longer the version that was read: nothing was written."""


class StoreUnavailable(StoreError):
    """No answer, or one that says to try again: the call may or may not have taken effect."""


class StoreRefused(StoreError):
    """The store refuses, and would again: credentials, permission, bucket, or what it cannot do.
    Nothing was written."""


class StoredObject(NamedTuple):
    """An object as it was read; `version` names these very bytes (an entity tag)."""

    data: bytes
    version: str


class ObjectInfo(NamedTuple):
    """An object in a listing; `modified_ms` is the store's clock, ms since the epoch."""

    key: str
    bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects below one URL. Keys are relative to it, of ASCII letters, digits and ``/._-``.

    All methods raise `StoreUnavailable` or `StoreRefused` besides what they name. Once a write has
    returned, the object survives whatever the store promises to survive (of a directory: a power
    cut).
    """

    @property
    def url(self) -> str:
        """Where it is, for messages: without credentials."""
        ...

    def create(self, key: str, data: bytes) -> str:
        """Write an object that must not be there yet; returns its version.

        Raises:
            ObjectExists: It is there.
        """
        ...

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Write over the version that was read; returns the new version.

        Raises:
            ObjectChanged: It is another version by now, or gone.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object, whatever was there."""
        ...

    def get(self, key: str) -> StoredObject:
        """Read an object whole.

        Raises:
            ObjectMissing: It is not there.
        """
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes of an object from `start` on; fewer only at its end.

        Raises:
            ObjectMissing: It is not there.
        """
        ...

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """The objects whose keys begin with `prefix` and are greater than `after`, by key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there count as removed."""
        ...
