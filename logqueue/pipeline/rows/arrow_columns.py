"""Columns of many blocks as Arrow arrays, without touching single records in Python.

Owns: where the values of a column are in the bytes of blocks. Must not know: events, segments,
what the columns mean to readers. Blocks come from checked frames, but their insides are checked
here once more: an offset that points elsewhere must not reach Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logqueue.events.block import NUMBER_COLUMNS, TEXTS, BlockError, BlockView

Ints = npt.NDArray[np.int64]

LARGE_RECORDS_MIN = 64
"""Blocks from this size on are wrapped one by one; smaller ones are looked at all together."""

_TEXTS = len(TEXTS)
_BITS = np.array([bits.bit_count() for bits in range(1 << len(NUMBER_COLUMNS))], np.int64)
_MAX = np.iinfo(np.int64).max


class ColumnPiece:
    """Neighbouring blocks.

    Attributes:
        counts: Records of each block.
    """

    counts: Ints

    def lengths(self, column: int) -> Ints | None:
        """Bytes of each value of a text column; None when no block has it."""
        raise NotImplementedError

    def values(self, column: int) -> pa.Array | None:
        """The values of a text column as binary; None when no block has it."""
        raise NotImplementedError

    def numbers(self, column: int) -> Ints | None:
        """A number column, 0 where a block leaves it out; None when no block has it."""
        raise NotImplementedError


class LargeBlock(ColumnPiece):
    """One block, its values wrapped where they are."""

    def __init__(self, block: bytes) -> None:
        view = _view(block)
        self._block = block
        self._view = view
        self._at = 8 + 8 * view.count * view.number_bits.bit_count()
        self.counts = np.array([view.count], np.int64)
        self._ends: dict[int, tuple[npt.NDArray[np.int32], int]] = {}
        bits = block[1]
        base = self._at + 4 * view.count * bits.bit_count()
        rank = 0
        for column in range(_TEXTS):
            if bits >> column & 1:
                offsets = np.empty(view.count + 1, np.int32)
                offsets[0] = 0
                offsets[1:] = np.frombuffer(
                    block, "<u4", view.count, self._at + 4 * view.count * rank
                )
                if (offsets[1:] < offsets[:-1]).any():
                    raise BlockError("the values of a block do not follow each other")
                self._ends[column] = offsets, base
                base += int(offsets[-1])
                rank += 1
        if base > len(block):
            raise BlockError("the values of a block reach over its end")

    def lengths(self, column: int) -> Ints | None:
        """See `ColumnPiece`."""
        if column not in self._ends:
            return None
        offsets = self._ends[column][0]
        return np.diff(offsets).astype(np.int64)

    def values(self, column: int) -> pa.Array | None:
        """See `ColumnPiece`."""
        if column not in self._ends:
            return None
        offsets, base = self._ends[column]
        text = pa.py_buffer(self._block).slice(base, int(offsets[-1]))
        return pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), text]
        )

    def numbers(self, column: int) -> Ints | None:
        """See `ColumnPiece`."""
        if not self._view.number_bits >> column & 1:
            return None
        rank = (self._view.number_bits & (1 << column) - 1).bit_count()
        at = 8 + 8 * self._view.count * rank
        return _signed(np.frombuffer(self._block, "<u8", self._view.count, at))


class SmallBlocks(ColumnPiece):
    """Many blocks of a few records each, laid end to end."""

    def __init__(self, blocks: Sequence[bytes]) -> None:
        self._bytes = b"".join(blocks)
        size = len(self._bytes)
        raw = np.frombuffer(self._bytes, np.uint8)
        # A word may begin at any byte.
        self._words = np.ndarray((max(size - 3, 0),), "<u4", self._bytes, strides=(1,))
        self._longs = np.ndarray((max(size - 7, 0),), "<u8", self._bytes, strides=(1,))
        lengths = np.fromiter(map(len, blocks), np.int64, len(blocks))
        if (lengths < 8).any():
            raise BlockError("a block is shorter than its header")
        self._at = at = np.cumsum(lengths) - lengths
        self._stop = at + lengths
        self._text_bits = raw[at + 1]
        self._number_bits = raw[at + 2].astype(np.uint16) | raw[at + 3].astype(np.uint16) << 8
        if (
            (raw[at] != 1).any()
            or (self._text_bits >> _TEXTS).any()
            or (self._number_bits >> len(NUMBER_COLUMNS)).any()
        ):
            raise BlockError("a block of a version or with columns this version does not know")
        self.counts = self._words[at + 4].astype(np.int64)
        self._is_single = bool((self.counts == 1).all())
        if not self._is_single:
            rows = int(self.counts.sum())
            self._block_of = np.repeat(np.arange(len(blocks)), self.counts)
            starts = np.cumsum(self.counts) - self.counts
            self._inner = np.arange(rows) - starts[self._block_of]
        self._spans = [*self._find()]

    def _find(self) -> Iterator[tuple[Ints, Ints] | None]:
        """Where each value of each text column begins and ends."""
        ends_at = self._at + 8 + 8 * self.counts * _BITS[self._number_bits]
        base = ends_at + 4 * self.counts * _BITS[self._text_bits]
        if (base > self._stop).any():
            raise BlockError("the columns of a block reach over its end")
        for column in range(_TEXTS):
            present = self._text_bits >> column & 1 == 1
            if not present.any():
                yield None
                continue
            # A block without the column may end where another one's ends would be.
            at = np.where(present, ends_at + 4 * self.counts - 4, 0)
            last = np.where(present, self._words[at], 0)
            if self._is_single:
                starts, ends = base, base + last
            else:
                starts, ends = self._rows(ends_at, base, present)
            base = base + last
            if (base > self._stop).any() or (ends < starts).any() or (ends[:-1] > starts[1:]).any():
                raise BlockError("the values of a block do not follow each other")
            yield starts, ends
            ends_at = ends_at + 4 * self.counts * present

    def _rows(self, ends_at: Ints, base: Ints, present: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Values of blocks with several records: an end is the next one's start."""
        of, inner = self._block_of, self._inner
        here = present[of]
        at = np.where(here, ends_at[of] + 4 * inner, 0)
        words = self._words
        ends = np.where(here, words[at], 0)
        starts = np.where(here & (inner > 0), words[at - 4], 0)
        bases = base[of]
        return bases + starts, bases + ends

    def lengths(self, column: int) -> Ints | None:
        """See `ColumnPiece`."""
        span = self._spans[column]
        return span[1] - span[0] if span is not None else None

    def values(self, column: int) -> pa.Array | None:
        """See `ColumnPiece`."""
        span = self._spans[column]
        if span is None:
            return None
        starts, ends = span
        count = len(starts)
        # Every second of these is a value, the others are the bytes between two of them.
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2] = starts
        offsets[1::2] = ends
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        mixed = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return mixed.take(pa.array(np.arange(0, 2 * count, 2)))

    def numbers(self, column: int) -> Ints | None:
        """See `ColumnPiece`."""
        present = self._number_bits >> column & 1 == 1
        if not present.any():
            return None
        rank = _BITS[self._number_bits & (1 << column) - 1]
        at = self._at + 8 + 8 * self.counts * rank
        if not self._is_single:
            at, present = at[self._block_of] + 8 * self._inner, present[self._block_of]
        found = np.zeros(len(at), np.int64)
        found[present] = _signed(self._longs[at[present]])
        return found


def _view(block: bytes) -> BlockView:
    """A view of a block, its header checked against its length."""
    if len(block) < 8:
        raise BlockError("a block is shorter than its header")
    count = int.from_bytes(block[4:8], "little")
    needed = 8 + count * (8 * (block[2] | block[3] << 8).bit_count() + 4 * block[1].bit_count())
    if not count or needed > len(block):
        raise BlockError("the columns of a block reach over its end")
    return BlockView(block)


def _signed(numbers: npt.NDArray[Any]) -> Ints:
    found: Ints = np.minimum(numbers, np.uint64(_MAX)).astype(np.int64)
    return found


def pieces(blocks: Sequence[bytes], counts: Sequence[int]) -> list[ColumnPiece]:
    """Blocks in order, in as few pieces as is quick.

    Args:
        blocks: The blocks.
        counts: About how many records each has.

    Raises:
        BlockError: One is not what this version can read.
    """
    found: list[ColumnPiece] = []
    done = 0
    for place in np.flatnonzero(np.asarray(counts) >= LARGE_RECORDS_MIN).tolist():
        if place > done:
            found.append(SmallBlocks(blocks[done:place]))
        found.append(LargeBlock(blocks[place]))
        done = place + 1
    if done < len(blocks):
        found.append(SmallBlocks(blocks[done:]))
    return found


def rows_of(piece: ColumnPiece) -> int:
    """How many records a piece has."""
    return int(piece.counts.sum())


def text_column(parts: Sequence[ColumnPiece], column: int) -> pa.Array | None:
    """A text column of all pieces as binary, null where a record has none; None for all null."""
    arrays = [part.values(column) for part in parts]
    if all(array is None for array in arrays):
        return None
    filled = [
        _empty(rows_of(part)) if array is None else array
        for part, array in zip(parts, arrays, strict=True)
    ]
    joined = filled[0] if len(filled) == 1 else pa.concat_arrays(filled)
    return _with_nulls(joined)


def _empty(count: int) -> pa.Array:
    """As many values without bytes."""
    offsets = pa.py_buffer(np.zeros(count + 1, np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(b"")])


def _with_nulls(array: pa.Array) -> pa.Array:
    """No JSON value is empty: a value without bytes is none."""
    _, offsets, values = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    has = ends[1:] != ends[:-1]
    if has.all():
        return array
    assert array.offset == 0, "a new array, not a slice"
    valid = pa.py_buffer(np.packbits(has, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(array), [valid, offsets, values])


def length_column(parts: Sequence[ColumnPiece], columns: Sequence[int]) -> Ints:
    """The bytes of each record's values in some text columns, added up."""
    found = []
    for part in parts:
        total = np.zeros(rows_of(part), np.int64)
        for column in columns:
            lengths = part.lengths(column)
            if lengths is not None:
                total = total + lengths
        found.append(total)
    return np.concatenate(found)


def number_column(parts: Sequence[ColumnPiece], column: int) -> Ints | None:
    """A number column of all pieces, 0 where a record has none; None when no record has any."""
    arrays = [part.numbers(column) for part in parts]
    if all(array is None for array in arrays):
        return None
    return np.concatenate(
        [
            np.zeros(rows_of(part), np.int64) if array is None else array
            for part, array in zip(parts, arrays, strict=True)
        ]
    )
