"""A block whose data values may be outside memory: everything else stays in its head.

Owns: where the data of a block is read from, and the change from memory to a source. Must not
know: the layout of a block (see `block`), files, topics.

Data is what makes a record large, and only replies and copies need it. Sizes, tags, keys, times and
limits are all in the head, so deciding and applying never wait for a disk.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol

SPLIT_FROM_BYTES = 1 << 10
"""Blocks with less data stay whole: what it takes to find the data again costs 300 bytes."""

_FIELDS = Struct("<BBHI")
_END = Struct("<I")


class DataSource(Protocol):
    """Where data is read from that is not in memory."""

    def read(self, start: int, end: int) -> bytes:
        """The bytes from one offset up to another, both within the data.

        Raises:
            LogqueueError: They cannot be read, or are not what was stored.
        """
        ...


class BlockData:
    """The data values of a block, one after the other. May be shared by several blocks.

    Attributes:
        length: In bytes.
    """

    __slots__ = ("__weakref__", "_base", "_source", "length")

    def __init__(self, block: bytes, base: int, length: int) -> None:
        """Data in memory: `length` bytes of a block from the offset `base` on."""
        self._source: bytes | DataSource = block
        self._base = base
        self.length = length

    @property
    def block_in_memory(self) -> bytes | None:
        """The whole block that has it, while it is in memory; None afterwards."""
        source = self._source
        return source if isinstance(source, bytes) else None

    @property
    def in_memory(self) -> memoryview | None:
        """All of it, while it is in memory; None afterwards."""
        source = self._source
        if not isinstance(source, bytes):
            return None
        return memoryview(source)[self._base : self._base + self.length]

    def locate(self, start: int, end: int) -> tuple[bytes, int]:
        """Bytes that have those from one offset up to another, and where they begin in there: what
        is in memory is not copied.

        Raises:
            LogqueueError: As the source does.
        """
        # Another thread may change the source, in one step.
        source = self._source
        if isinstance(source, bytes):
            return source, self._base + start
        return source.read(start, end), 0

    def move_to(self, source: DataSource) -> None:
        """Read from a source that has the same bytes from now on, and free the memory."""
        self._source = source


class SplitBlock:
    """A block in two parts.

    Attributes:
        head: The block without its data values.
        data: Has them, perhaps among others.
        start: Offset in `data` of the first.
    """

    __slots__ = ("_length", "data", "head", "start")

    def __init__(self, head: bytes, data: BlockData, start: int, end: int) -> None:
        """Values from `start` to `end` in `data`, and the rest of their block."""
        self.head = head
        self.data = data
        self.start = start
        # Every read asks for it.
        self._length = len(head) + end - start

    def __len__(self) -> int:
        """Bytes of the block in one piece."""
        return self._length

    def locate(self, start: int, end: int) -> tuple[bytes, int]:
        """See BlockData; offsets are counted from the first value of this block.

        Raises:
            LogqueueError: They cannot be read, or are not what was stored.
        """
        return self.data.locate(self.start + start, self.start + end)

    def read(self, start: int, end: int) -> bytes:
        """The same as bytes of their own.

        Raises:
            LogqueueError: They cannot be read, or are not what was stored.
        """
        found, at = self.data.locate(self.start + start, self.start + end)
        return found[at : at + end - start]


Block = bytes | SplitBlock
"""The records of a batch, as the state holds them."""


def data_bounds(head: bytes) -> tuple[int, int]:
    """Where the data values of a block begin, and how many bytes they are."""
    _, text_bits, number_bits, count = _FIELDS.unpack_from(head)
    ends = 8 + 8 * count * number_bits.bit_count()
    (length,) = _END.unpack_from(head, ends + 4 * count - 4)
    return ends + 4 * count * text_bits.bit_count(), length


def split(block: bytes) -> SplitBlock:
    """A block in two parts, its data still in memory."""
    base, length = data_bounds(block)
    head = block[:base] + block[base + length :]
    return SplitBlock(head, BlockData(block, base, length), 0, length)


def joined(block: Block) -> bytes:
    """A block in one piece, as the log has it.

    Raises:
        LogqueueError: Its data cannot be read.
    """
    if isinstance(block, bytes):
        return block
    original = block.data.block_in_memory
    if original is not None and len(original) == len(block):
        # No record was cut off, so nothing need be copied.
        return original
    base, length = data_bounds(block.head)
    return b"".join((block.head[:base], block.read(0, length), block.head[base:]))


def head_of(block: Block) -> bytes:
    """What is in memory for certain: all but the data values, or everything."""
    return block if isinstance(block, bytes) else block.head
