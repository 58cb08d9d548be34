"""A batch of records as one run of bytes, column by column.

Owns: the byte layout that is at once the payload of an append in the log and the batch in memory,
so that a record is encoded once in its life. Must not know: topics, leases, the log.

Layout, little endian, for `n` records:

    u8 version=1 | u8 text columns (bits) | u16 number columns (bits) | u32 n
    for each number column present, in bit order:   n x u64
    for each text column present, in bit order:     n x u32   (end offset of each value)
    for each text column present, in bit order:     the values, one after the other

Texts are JSON fragments exactly as they go out on the wire (`data` as sent without blanks, `tag`
as a quoted string, ...), so a reply is a join of slices. A value of length zero means "absent":
no JSON value is empty. Columns that no record of the batch uses are left out. New per-record
fields take the next free bit; a reader that meets a bit it does not know must refuse the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, repeat
from struct import Struct
from struct import pack as struct_pack
from struct import unpack_from as struct_unpack_from

import msgspec

DATA, TAG, NODE, META = range(4)
TEXT_COLUMNS = ("data", "tag", "node", "meta")
SEQ, TS = range(2)
NUMBER_COLUMNS = ("seq", "ts")

_VERSION = 1
_HEADER = Struct("<BBHI")
_END = Struct("<I")
_SPAN = Struct("<II")

_strings = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()

_BITS = {mask: tuple(i for i in range(8) if mask >> i & 1) for mask in range(256)}


class BlockError(ValueError):
    """Bytes that are not a block this version can read."""


Texts = tuple[bytes, bytes, bytes, bytes]
"""One record's JSON fragments in the order of TEXT_COLUMNS; b"" where the record has none."""


def pack(
    texts: Sequence[Sequence[bytes] | None],
    *,
    seqs: Sequence[int] | None = None,
    ts: Sequence[int] | None = None,
) -> bytes:
    """Encode a batch.

    Args:
        texts: One sequence of fragments per text column in the order of TEXT_COLUMNS, or None for
            a column nobody uses. The data column is required.
        seqs: Per-record sequence numbers, when they are not consecutive.
        ts: Per-record times in ms, when they differ.

    Returns:
        The block.
    """
    data = texts[DATA]
    assert data is not None, "every record has data"
    n = len(data)
    assert n > 0, "an empty batch is never written"
    if n == 1 and seqs is None and ts is None:
        return _pack_one([column[0] if column is not None else None for column in texts])
    text_bits = number_bits = 0
    arrays: list[bytes] = []
    ends: list[bytes] = []
    values: list[bytes] = []
    for column, numbers in enumerate((seqs, ts)):
        if numbers is not None:
            number_bits |= 1 << column
            arrays.append(struct_pack(f"<{n}Q", *numbers))
    for column, column_texts in enumerate(texts):
        if column_texts is not None:
            text_bits |= 1 << column
            ends.append(struct_pack(f"<{n}I", *accumulate(map(len, column_texts))))
            values.extend(column_texts)
    header = _HEADER.pack(_VERSION, text_bits, number_bits, n)
    return b"".join(chain((header,), arrays, ends, values))


def _pack_one(texts: Sequence[bytes | None]) -> bytes:
    """`pack` for a batch of one, which is what a producer that does not batch sends."""
    text_bits = 0
    ends: list[bytes] = []
    values: list[bytes] = []
    for column, text in enumerate(texts):
        if text is not None:
            text_bits |= 1 << column
            ends.append(_END.pack(len(text)))
            values.append(text)
    return b"".join((_HEADER.pack(_VERSION, text_bits, 0, 1), *ends, *values))


class View:
    """Reads records out of a block. Cheap to make; keeps nothing but offsets."""

    __slots__ = ("_columns", "block", "count", "number_bits")

    def __init__(self, block: bytes) -> None:
        """Look at a block.

        Raises:
            BlockError: Unknown version or column.
        """
        version, text_bits, number_bits, count = _HEADER.unpack_from(block)
        if version != _VERSION or text_bits >> len(TEXT_COLUMNS) or number_bits >> 2:
            raise BlockError(f"block version {version} columns {text_bits:#x}/{number_bits:#x}")
        self.block = block
        self.count: int = count
        self.number_bits: int = number_bits
        present = _BITS[text_bits]
        at = 8 + 8 * count * number_bits.bit_count()
        base = at + 4 * count * len(present)
        columns: list[tuple[int, int]] = [(0, 0)] * len(TEXT_COLUMNS)
        for column in present:
            columns[column] = (at, base)
            at += 4 * count
            base += _END.unpack_from(block, at - 4)[0]
        self._columns = columns

    def text(self, column: int, index: int) -> bytes:
        """One record's fragment in one column; b"" when absent."""
        at, base = self._columns[column]
        if not at:
            return b""
        if index:
            start, end = _SPAN.unpack_from(self.block, at + 4 * index - 4)
        else:
            start, end = 0, _END.unpack_from(self.block, at)[0]
        return self.block[base + start : base + end]

    def texts(self, index: int) -> Texts:
        """All fragments of one record."""
        data, tag, node, meta = (self.text(column, index) for column in range(len(TEXT_COLUMNS)))
        return data, tag, node, meta

    def rows(self, indexes: Sequence[int]) -> Iterator[Texts]:
        """All fragments of several records. Takes whole columns apart when most are wanted."""
        if len(indexes) * 4 < self.count:
            return map(self.texts, indexes)
        columns: list[Iterable[bytes]] = []
        whole = len(indexes) == self.count
        for column in range(len(TEXT_COLUMNS)):
            texts = self.column(column)
            if texts is None:
                columns.append(repeat(b"", len(indexes)))
            else:
                columns.append(texts if whole else [texts[i] for i in indexes])
        return zip(*columns, strict=True)

    def column(self, column: int) -> list[bytes] | None:
        """All fragments of one column, or None when nobody uses it."""
        at, base = self._columns[column]
        if not at:
            return None
        ends = struct_unpack_from(f"<{self.count}I", self.block, at)
        block = self.block
        return [block[base + a : base + b] for a, b in pairwise((0, *ends))]

    def size(self, index: int) -> int:
        """Bytes of one record as the limits count them: compact data plus compact meta."""
        return self._length(DATA, index) + self._length(META, index)

    def size_total(self) -> int:
        """Bytes of all records of the block."""
        total = 0
        for column in (DATA, META):
            at, _ = self._columns[column]
            if at:
                total += _END.unpack_from(self.block, at + 4 * self.count - 4)[0]
        return total

    def numbers(self, column: int) -> tuple[int, ...] | None:
        """One number column, or None when the block leaves it out."""
        if not self.number_bits >> column & 1:
            return None
        at = 8 + (8 * self.count if column and self.number_bits & 1 else 0)
        return struct_unpack_from(f"<{self.count}Q", self.block, at)

    def _length(self, column: int, index: int) -> int:
        at, _ = self._columns[column]
        if not at:
            return 0
        if not index:
            length: int = _END.unpack_from(self.block, at)[0]
            return length
        start, end = _SPAN.unpack_from(self.block, at + 4 * index - 4)
        return int(end - start)


def read_string(fragment: bytes) -> str:
    """The text of a JSON string fragment (a tag or a node)."""
    return _strings.decode(fragment)


def write_string(text: str) -> bytes:
    """The JSON string fragment of a text."""
    return _encoder.encode(text)
