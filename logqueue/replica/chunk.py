"""Chunks: immutable objects with whole frames of both logs, in a chain of numbers and digests.

Owns: the bytes of a chunk and their checks. Must not know: stores, who writes when.

    8   magic
    4   length of the header, little endian
    …   header: JSON of `ChunkHeader`
    …   the bytes of its runs, one after the other
    32  SHA-256 of all before: the digest of the chunk

A run is bytes of one segment file, from the end of one frame to the end of another, so segments of
the same bytes can be made of chunks again.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Literal

import msgspec

FORMAT = 1
_MAGIC = b"LQCHUNK\n"
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES = 32
_HEADER_START = len(_MAGIC) + _LENGTH.size
HEADER_BYTES_MAX = 16 << 20

ChunkKind = Literal["frames", "takeover"]
LogName = Literal["jobs", "leases"]


class ChunkDamaged(Exception):
    """The bytes are not a chunk, or not the one they should be; the message says what is wrong."""


class ChunkRun(msgspec.Struct, frozen=True):
    """Bytes of one segment of one log.

    Attributes:
        log: Which log.
        segment: Id of the segment.
        base: Number of the first frame of that segment.
        offset: Where in the segment file the bytes belong.
        bytes: How many there are; 0 says that the segment begins, and so that the one before it
            ends where it ended so far.
        first: Number of their first frame; without frames, of the first that may come.
        last: Number of their last frame; without frames, one less.
    """

    log: LogName
    segment: int
    base: int
    offset: int
    bytes: int
    first: int
    last: int


class ChunkHeader(msgspec.Struct, frozen=True):
    """What a chunk says of itself.

    Attributes:
        format: `FORMAT`.
        log_id: Identity of the jobs log, in hex.
        leases_id: Identity of the leases log, in hex.
        epoch: Of the writer.
        writer: Id of the writer: of one run of one server.
        number: Its place in the chain, from 1.
        previous: Digest of the chunk before it, in hex; "" of the first.
        kind: `takeover` is the first chunk of an epoch, without runs. It is never deleted: it keeps
            the place at which the writer before it is refused.
        runs: What it holds, in order.
    """

    format: int
    log_id: str
    leases_id: str
    epoch: int
    writer: str
    number: int
    previous: str
    kind: ChunkKind
    runs: tuple[ChunkRun, ...] = ()


# Several threads may not be the first to decode a type at the same time: made once, here.
_headers = msgspec.json.Decoder(ChunkHeader)


class Chunk(msgspec.Struct, frozen=True):
    """A chunk that was checked.

    Attributes:
        header: What it says of itself.
        data: The bytes of each run.
        digest: Of the whole object, in hex.
    """

    header: ChunkHeader
    data: tuple[bytes, ...]
    digest: str


def chunk_key(number: int) -> str:
    """Where a chunk is below the URL of the replica: keys sort as numbers do."""
    return f"chunks/{number:020d}"


def encode_chunk(header: ChunkHeader, data: Sequence[bytes | memoryview]) -> tuple[bytes, str]:
    """The object of a chunk, and its digest in hex. The data is copied once."""
    assert [run.bytes for run in header.runs] == [len(part) for part in data]
    text = msgspec.json.encode(header)
    parts = (_MAGIC + _LENGTH.pack(len(text)) + text, *data)
    sum = hashlib.sha256()
    for part in parts:
        sum.update(part)
    digest = sum.digest()
    return b"".join((*parts, digest)), digest.hex()


def chunk_header_end(data: bytes) -> int:
    """Where the header of a chunk ends, from its first 12 bytes or more.

    Raises:
        ChunkDamaged: It is not a chunk.
    """
    if len(data) < _HEADER_START or data[: len(_MAGIC)] != _MAGIC:
        raise ChunkDamaged("it does not begin as a chunk, or is cut short")
    length = _LENGTH.unpack_from(data, len(_MAGIC))[0]
    if length > HEADER_BYTES_MAX:
        raise ChunkDamaged(f"its header cannot have {length} bytes")
    return _HEADER_START + int(length)


def decode_chunk_header(data: bytes, number: int) -> ChunkHeader:
    """The header of the chunk of a number, from its first bytes; those behind it are not checked.

    Raises:
        ChunkDamaged: It is not such a header.
    """
    end = chunk_header_end(data)
    if len(data) < end:
        raise ChunkDamaged("it is cut short")
    try:
        header = _headers.decode(data[_HEADER_START:end])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ChunkDamaged(f"its header cannot be read: {error}") from error
    if header.format != FORMAT:
        raise ChunkDamaged(f"it has format {header.format}; this version reads {FORMAT}")
    if header.number != number:
        raise ChunkDamaged(f"it is chunk {header.number}")
    return header


def decode_chunk(data: bytes, number: int) -> Chunk:
    """Check the object that should be the chunk of a number.

    Raises:
        ChunkDamaged: It is not.
    """
    if len(data) < _HEADER_START + _DIGEST_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise ChunkDamaged("it does not begin as a chunk, or is cut short")
    digest = hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest()
    if digest != data[-_DIGEST_BYTES:]:
        raise ChunkDamaged("its digest does not match its bytes: it was changed or is cut short")
    header = decode_chunk_header(data, number)
    parts: list[bytes] = []
    place = chunk_header_end(data)
    for run in header.runs:
        parts.append(data[place : place + run.bytes])
        place += run.bytes
    if place != len(data) - _DIGEST_BYTES:
        raise ChunkDamaged("its runs do not add up to its bytes")
    return Chunk(header, tuple(parts), digest.hex())
