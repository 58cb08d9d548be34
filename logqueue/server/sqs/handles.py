"""What names a message: its id, and the receipt handle of one delivery.

Owns: how both are made and read. Must not know: actions, leases.

A receipt handle is the lease: instance of the queue, seq and lease number, with a checksum by which
handles of other servers are known. It is not a secret: what a caller may settle is decided by its
key, and by the lease.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

_HANDLE: Final = Struct(">QQQ")
_CHECK_BYTES: Final = 6
_CHARS: Final = (_HANDLE.size + _CHECK_BYTES) * 4 // 3


class Receipt(NamedTuple):
    """What a receipt handle says."""

    instance: int
    seq: int
    lease: int


def write_handle(log: str, receipt: Receipt) -> str:
    """The receipt handle of a delivery; `log` tells the data of this server from others'."""
    packed = _HANDLE.pack(*receipt)
    return urlsafe_b64encode(packed + _check(log, packed)).decode()


def read_handle(log: str, handle: str) -> Receipt | None:
    """What a receipt handle says; None when this server did not make it."""
    if len(handle) != _CHARS or not handle.isascii():
        return None
    try:
        found = urlsafe_b64decode(handle)
    except Error:
        return None
    packed, check = found[: _HANDLE.size], found[_HANDLE.size :]
    if len(packed) != _HANDLE.size or check != _check(log, packed):
        return None
    return Receipt(*_HANDLE.unpack(packed))


def message_id(log_id: str, seq: int) -> str:
    """The id of a message: a UUID (version 8) of the queue's `log_id` and the seq."""
    digest = bytearray(blake2b(f"{log_id}/{seq}".encode(), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _check(log: str, packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_CHECK_BYTES, key=log.encode()[:64]).digest()
