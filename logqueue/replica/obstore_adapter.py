"""Object stores of clouds through the package obstore: S3 and what speaks like it, GCS, Azure.

Owns: what each error of the package says about the call, and how long a call may take. Must not
know: what the objects mean.

Writes on condition are sent once: a retry below this seam would report a create that took effect
as one that found the object. Who calls decides what to do about an unknown outcome. All other calls
may be repeated, and are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from logqueue import extras
from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    StoredObject,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Client

with extras.explained("a replica in an object store"):
    import obstore
    from obstore import exceptions

CONNECT_S_MAX = 5
STALL_S_MAX = 15
"""How long a reply that is being read may bring nothing."""

CALL_S_MAX = 20
"""How long a call may take that carries little: its outcome is unknown then."""

LARGE_CALL_S_MAX = 300
"""The same of calls that carry more than `LARGE_BYTES`, and of reads."""

LARGE_BYTES = 10 << 20
RETRIES = 2
RETRY_S_MAX = 30
DELETE_KEYS_MAX = 1000

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")

_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
# What says that another call was under way, and that this one has written nothing.
_CONFLICT = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_TRY_AGAIN = frozenset({"RequestTimeout", "SlowDown", "ServerBusy"}) | _CONFLICT
_TRY_AGAIN_STATUS = frozenset({408, 409, 425, 429})
_RANGE_STATUS = 416
_RANGE_TEXT = "Wanted range starting at"
_NOT_IMPLEMENTED_STATUS = 501


class _Outcome(NamedTuple):
    """What the package says of a failed call.

    Attributes:
        status: Of the reply; 0 when there was none.
        code: Of the error by the store; "" when it gave none.
        text: For people, one line.
    """

    status: int
    code: str
    text: str


class MakeClient(Protocol):
    """Makes a client of the package with these bounds."""

    def __call__(self, *, client_options: ClientConfig, retry_config: RetryConfig) -> Client:
        """Make it."""
        ...


class ObstoreAdapter:
    """One bucket or container, below a prefix. May be used from any thread."""

    def __init__(self, url: str, make_client: MakeClient) -> None:
        """Make the clients; nothing is sent yet.

        Args:
            url: For messages, without credentials.
            make_client: Makes a client for the bucket and prefix.

        Raises:
            StoreRefused: The settings of the environment are invalid.
        """
        self._url = url
        once: RetryConfig = {"max_retries": 0}
        repeated: RetryConfig = {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S_MAX),
        }

        def client(seconds: int, retry: RetryConfig, stall: int | None = None) -> Client:
            options: ClientConfig = {
                # Only ever used where the endpoint that was asked for is one.
                "allow_http": True,
                "connect_timeout": timedelta(seconds=CONNECT_S_MAX),
                "timeout": timedelta(seconds=seconds),
            }
            if stall is not None:
                options["read_timeout"] = timedelta(seconds=stall)
            return make_client(client_options=options, retry_config=retry)

        with self._reported(""):
            self._writing = client(CALL_S_MAX, once)
            self._writing_large = client(LARGE_CALL_S_MAX, once)
            self._reading = client(LARGE_CALL_S_MAX, repeated, STALL_S_MAX)

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return self._url

    def create(self, key: str, data: bytes) -> str:
        """See ObjectStore."""

        def refused(outcome: _Outcome) -> type[StoreError]:
            return StoreUnavailable if outcome.code in _CONFLICT else ObjectExists

        with self._reported(key, exists=refused):
            client = self._writer(data)
            return _version(obstore.put(client, key, data, mode="create", use_multipart=False))

    def replace(self, key: str, data: bytes, version: str) -> str:
        """See ObjectStore."""

        def refused(outcome: _Outcome) -> type[StoreError]:
            return StoreUnavailable if outcome.code in _CONFLICT else ObjectChanged

        with self._reported(key, missing=ObjectChanged, exists=refused, changed=refused):
            e_tag, _, generation = version.partition(" ")
            update: Any = {}
            if e_tag:
                update["e_tag"] = e_tag
            if generation:
                update["version"] = generation
            client = self._writer(data)
            return _version(obstore.put(client, key, data, mode=update, use_multipart=False))

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore."""
        with self._reported(key):
            obstore.put(self._writer(data), key, data, use_multipart=False)

    def get(self, key: str) -> StoredObject:
        """See ObjectStore."""
        with self._reported(key, missing=ObjectMissing):
            found = obstore.get(self._reading, key)
            return StoredObject(found.bytes().to_bytes(), _version(found.meta))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        if length == 0:
            return b""
        try:
            with self._reported(key, missing=ObjectMissing):
                return obstore.get_range(self._reading, key, start=start, length=length).to_bytes()
        except _BeyondTheEnd:
            return b""

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        # The package takes prefixes of whole names between slashes.
        folder = prefix.rpartition("/")[0]
        with self._reported(prefix):
            for page in obstore.list(self._reading, folder or None, offset=after or None):
                for meta in page:
                    if meta["path"].startswith(prefix):
                        yield ObjectInfo(
                            meta["path"],
                            meta["size"],
                            int(meta["last_modified"].timestamp() * 1000),
                        )

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        every = [*keys]
        for start in range(0, len(every), DELETE_KEYS_MAX):
            some = every[start : start + DELETE_KEYS_MAX]
            try:
                with self._reported(some[0], missing=ObjectMissing):
                    obstore.delete(self._reading, some)
            except ObjectMissing:
                # Some stores say so of one and leave the others.
                for key in some:
                    self._delete_one(key)

    def _delete_one(self, key: str) -> None:
        try:
            with self._reported(key, missing=ObjectMissing):
                obstore.delete(self._reading, key)
        except ObjectMissing:
            pass

    def _writer(self, data: bytes) -> Client:
        return self._writing if len(data) <= LARGE_BYTES else self._writing_large

    @contextmanager
    def _reported(
        self,
        key: str,
        *,
        missing: type[StoreError] = StoreRefused,
        exists: Callable[[_Outcome], type[StoreError]] = lambda outcome: StoreUnavailable,
        changed: Callable[[_Outcome], type[StoreError]] = lambda outcome: StoreUnavailable,
    ) -> Iterator[None]:
        """Turns errors of the package into ours.

        Args:
            key: Of the object.
            missing: What it means that there is no such object.
            exists: What it means that there is one.
            changed: What it means that it is not the version asked for.
        """
        try:
            yield
        except (OSError, ValueError, NotImplementedError, exceptions.BaseError) as error:
            outcome = _outcome(error)
            kind: type[StoreError]
            if outcome.code in _NO_BUCKET:
                kind = StoreRefused
            elif isinstance(error, FileNotFoundError):
                kind = missing
            elif isinstance(error, exceptions.AlreadyExistsError):
                kind = exists(outcome)
            elif isinstance(error, exceptions.PreconditionError):
                kind = changed(outcome)
            elif isinstance(error, exceptions.GenericError):
                kind = _kind_of_status(outcome)
            elif isinstance(error, (exceptions.JoinError, OSError)):
                kind = StoreUnavailable
            else:
                kind = StoreRefused
            where = f"{self._url}/{key}" if key else self._url
            raise kind(f"{where}: {outcome.text}{_advice(outcome)}") from error


class _BeyondTheEnd(StoreError):
    """A range begins behind the end of the object."""


def _kind_of_status(outcome: _Outcome) -> type[StoreError]:
    status = outcome.status
    if status == _RANGE_STATUS or _RANGE_TEXT in outcome.text:
        return _BeyondTheEnd
    if outcome.code in _TRY_AGAIN or status in _TRY_AGAIN_STATUS:
        return StoreUnavailable
    if 300 <= status < 500 or status == _NOT_IMPLEMENTED_STATUS:
        return StoreRefused
    return StoreUnavailable


def _outcome(error: Exception) -> _Outcome:
    text = str(error).partition("\n\nDebug source")[0]
    status = _STATUS.search(text)
    code = _CODE.search(text)
    message = _MESSAGE.search(text)
    if code is not None:
        short = f"{code[1]}: {message[1]}" if message else code[1]
    else:
        short = " ".join(text.split())[:300]
    return _Outcome(int(status[1]) if status else 0, code[1] if code else "", short)


def _advice(outcome: _Outcome) -> str:
    if outcome.code in _NO_BUCKET:
        return " (make the bucket first, or correct the URL)"
    if "169.254.169.254" in outcome.text:
        return " (no credentials in the environment: set AWS_ACCESS_KEY_ID and so on)"
    return ""


def _version(meta: Any) -> str:
    e_tag, version = meta.get("e_tag"), meta.get("version")
    return f"{e_tag or ''} {version}" if version else str(e_tag or "")
