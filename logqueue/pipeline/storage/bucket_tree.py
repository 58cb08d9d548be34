"""Files in an object store, through the seam that replicas use.

Owns: files as objects, a lock that runs out. Must not know: what files hold, which stores exist.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from logqueue.errors import quoted
from logqueue.extras import MissingExtra
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.tree import FileInfo
from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreError,
    StoreUnavailable,
)
from logqueue.replica.opening import BadReplicaUrl, open_store

TRIES: Final = 4
"""Of a write on condition whose outcome is unknown."""
LOCK_S: Final = 60
"""How long a lock outlives a process that was killed."""
RENEWAL_S: Final = 15


class BucketTree:
    """The objects below a URL such as s3://bucket/prefix; see `FileTree`."""

    def __init__(self, url: str, prefix: str = "") -> None:
        """Nothing is read or sent yet.

        Args:
            url: As `logqueue.replica.opening` takes it.
            prefix: Of all names, empty or ending in `/`.

        Raises:
            PipelineError: It is invalid, or a package is missing.
        """
        self._url = url.rstrip("/") if not url.endswith("://") else url
        self._prefix = prefix
        try:
            with _reported():
                self._store()
        except BadReplicaUrl as error:
            raise PipelineError(
                f"{quoted(url)} is not a place in an object store: use s3://BUCKET/PREFIX, "
                "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, of letters, digits and '._-=+' "
                "between single slashes; region, endpoint and credentials come from environment "
                "variables"
            ) from error

    def _store(self) -> ObjectStore:
        return _store_of(self._url, os.getpid())

    @property
    def url(self) -> str:
        """See FileTree."""
        return f"{self._url}/{self._prefix}".rstrip("/") if self._prefix else self._url

    @property
    def directory(self) -> str | None:
        """See FileTree."""
        return None

    def path(self, name: str) -> str:
        """See FileTree."""
        return f"{self._url}/{self._prefix}{name}"

    def below(self, folder: str) -> BucketTree:
        """See FileTree."""
        return BucketTree(self._url, f"{self._prefix}{folder}/")

    def read(self, name: str) -> bytes:
        """See FileTree."""
        with _reported():
            return self._store().get(self._prefix + name).data

    def source(self, name: str) -> Any:
        """See FileTree."""
        import pyarrow as pa

        return pa.BufferReader(self.read(name))

    def info(self, name: str) -> FileInfo | None:
        """See FileTree."""
        with _reported():
            key = self._prefix + name
            for found in self._store().list(key):
                if found.key == key:
                    return FileInfo(name, found.bytes, found.modified_ms)
        return None

    def files(self, prefix: str = "") -> Iterator[FileInfo]:
        """See FileTree."""
        with _reported():
            for found in self._store().list(self._prefix + prefix):
                name = found.key.removeprefix(self._prefix)
                if not name.rpartition("/")[2].startswith("_lock"):
                    yield FileInfo(name, found.bytes, found.modified_ms)

    def folders(self, prefix: str = "") -> list[str]:
        """See FileTree."""
        rests = (file.name[len(prefix) :] for file in self.files(prefix))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def create(self, name: str, data: bytes) -> bool:
        """See FileTree."""
        with _reported():
            for left in reversed(range(TRIES)):
                try:
                    self._store().create(self._prefix + name, data)
                    return True
                except ObjectExists:
                    # Perhaps by an attempt of this very call.
                    return self._store().get(self._prefix + name).data == data
                except StoreUnavailable:
                    if not left:
                        raise
        raise AssertionError("unreachable")

    def replace(self, name: str, data: bytes) -> None:
        """See FileTree."""
        with _reported():
            self._store().put(self._prefix + name, data)

    def add(self, local: str, name: str) -> None:
        """See FileTree."""
        with open(local, "rb") as file:
            self.replace(name, file.read())
        with suppress(FileNotFoundError):
            os.unlink(local)

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """See FileTree; in the directory for temporary files."""
        with tempfile.TemporaryDirectory(prefix="logqueue-") as folder:
            yield os.path.join(folder, name.rpartition("/")[2])

    def remove(self, names: Iterable[str]) -> None:
        """See FileTree."""
        with _reported():
            self._store().delete(self._prefix + name for name in names)

    def lock(self, work: str) -> BucketLock:
        """See FileTree."""
        return BucketLock(self._store(), f"{self._prefix}_lock-{work}", work)


class _Holder(msgspec.Struct, frozen=True):
    """Who holds a lock; `until_ms` by the clock of the holder."""

    token: str
    name: str
    until_ms: int


class BucketLock:
    """That only one process does a kind of work below a URL. Use it as a context manager.

    An object names the holder, who renews it in a thread. When a holder is killed, the lock runs
    out after a minute. What is published below the URL is created on condition besides: a holder
    that was stopped for longer than that overwrites nothing.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        work: str,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._key = key
        self._work = work
        self._now_ms = now_ms
        self._token = uuid.uuid4().hex
        self._version = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            PipelineError: Another process holds it; the message names that.
        """
        with _reported():
            self._take()
        self._thread = threading.Thread(target=self._renew, name="lock", daemon=True)
        self._thread.start()
        return self

    def _take(self) -> None:
        try:
            self._version = self._store.create(self._key, self._content())
            return
        except ObjectExists:
            found = self._store.get(self._key)
        holder = msgspec.json.decode(found.data, type=_Holder)
        if holder.token != self._token and holder.until_ms > self._now_ms():
            left = (holder.until_ms - self._now_ms() + 999) // 1000
            raise PipelineError(
                f"{holder.name} is working on {self._store.url} ({self._work}): wait for it, or "
                f"end it (its lock runs out after {left} s unless it renews it)"
            )
        try:
            self._version = self._store.replace(self._key, self._content(), found.version)
        except ObjectChanged as error:
            raise PipelineError(
                f"another process has begun to work on {self._store.url} ({self._work}): wait for "
                "it, or end it"
            ) from error

    def _content(self) -> bytes:
        name = f"process {os.getpid()} on {socket.gethostname()}"
        return msgspec.json.encode(_Holder(self._token, name, self._now_ms() + LOCK_S * 1000))

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            try:
                self._version = self._store.replace(self._key, self._content(), self._version)
            except ObjectChanged:
                return
            except StoreError:
                # Tried again in time; the outcome of a renewal that failed may be unknown.
                with suppress(StoreError, msgspec.MsgspecError):
                    found = self._store.get(self._key)
                    if msgspec.json.decode(found.data, type=_Holder).token == self._token:
                        self._version = found.version

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        # Given back by running out now; a lock of another holder stays.
        over = msgspec.json.encode(_Holder(self._token, "", 0))
        with suppress(StoreError):
            self._store.replace(self._key, over, self._version)


@lru_cache(maxsize=16)
def _store_of(url: str, process: int) -> ObjectStore:
    """A store of this process: clients do not survive a fork."""
    return open_store(url)


@contextmanager
def _reported() -> Iterator[None]:
    """Turns errors of stores into ours.

    Raises:
        FileNotFoundError: An object is not there.
        PipelineError: All else.
    """
    try:
        yield
    except ObjectMissing as error:
        raise FileNotFoundError(str(error)) from error
    except (MissingExtra, StoreError) as error:
        raise PipelineError(str(error)) from error
