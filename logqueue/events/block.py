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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, chain, repeat
from operator import gt, or_
from struct import Struct
from struct import pack as struct_pack
from struct import unpack_from as struct_unpack_from

import msgspec

from logqueue.events.split_block import Block, SplitBlock, head_of

DATA, TAG, NODE, META = range(4)
TEXT_COLUMNS = ("data", "tag", "node", "meta")
KEY, GROUP, FOLLOW = 4, 5, 6
"""Text columns of jobs that `Texts` leaves out, since readers of records never see them: the key
and the group as JSON strings, and what follows the job as a JSON object."""
TEXTS = range(FOLLOW + 1)
"""All text columns that this version knows."""
NUMBER_COLUMNS = (
    "seq", "ts", "delay", "not_before", "ttl", "max_deliveries", "updated_at", "priority", "unique",
)  # fmt: skip
SEQ, TS, DELAY, NOT_BEFORE, TTL, MAX_DELIVERIES, UPDATED_AT, PRIORITY, UNIQUE = range(9)
"""Times are ms since the epoch; `delay` and `ttl` are ms from when the record was written, that is
`updated_at` or else `ts`. 0 means that a record does not use the column."""

UNIQUE_KEPT = 2
"""In the column `UNIQUE`: the job has its key until what became of it is forgotten. 1: until its
end."""

_VERSION = 1
_HEADER = Struct("<BBHI")
_END = Struct("<I")
_NUMBER = Struct("<Q")
_SPAN = Struct("<II")

_strings = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()

_BEFORE_META = (1 << META) - 1
_MOVED = 1 << SEQ | 1 << TS
_INDEXED = 1 << TAG | sum(1 << column for column in TEXTS[KEY:])
_BARE_ONE = _HEADER.pack(_VERSION, 1 << DATA, 0, 1)

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
    numbers: Mapping[int, Sequence[int]] | None = None,
) -> bytes:
    """Encode a batch.

    Args:
        texts: One sequence of fragments per text column in the order of TEXT_COLUMNS, perhaps with
            further ones behind them, or None for an unused column. The data column is
            required.
        seqs: Per-record sequence numbers, when they are not consecutive.
        ts: Per-record times in ms, when they differ.
        numbers: Further number columns, from DELAY on; leave out those that hold only zeros.

    Returns:
        The block.
    """
    data = texts[DATA]
    assert data is not None, "every record has data"
    if len(data) == 1 and seqs is None and ts is None and not numbers:
        return _pack_one([column[0] if column is not None else None for column in texts])
    head, values = layout(texts, {SEQ: seqs, TS: ts, **(numbers or {})})
    return b"".join(chain(head, values))


def pack_bare(data: Sequence[bytes]) -> bytes:
    """The block of records that have nothing but data."""
    if len(data) == 1:
        return b"%b%b%b" % (_BARE_ONE, _END.pack(len(data[0])), data[0])
    ends = struct_pack(f"<{len(data)}I", *accumulate(map(len, data)))
    return b"".join((_HEADER.pack(_VERSION, 1 << DATA, 0, len(data)), ends, *data))


def layout(
    texts: Sequence[Sequence[bytes] | None], given: Mapping[int, Sequence[int] | None]
) -> tuple[list[bytes], list[bytes]]:
    """A block in parts: all up to the values, and these."""
    data = texts[DATA]
    assert data is not None, "every record has data"
    n = len(data)
    assert n > 0, "an empty batch is never written"
    text_bits = number_bits = 0
    arrays: list[bytes] = []
    ends: list[bytes] = []
    values: list[bytes] = []
    for column in sorted(given):
        values_of = given[column]
        if values_of is not None:
            number_bits |= 1 << column
            arrays.append(struct_pack(f"<{n}Q", *values_of))
    for column, column_texts in enumerate(texts):
        if column_texts is not None:
            text_bits |= 1 << column
            ends.append(struct_pack(f"<{n}I", *accumulate(map(len, column_texts))))
            values.extend(column_texts)
    header = _HEADER.pack(_VERSION, text_bits, number_bits, n)
    return [header, *arrays, *ends], values


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


class BlockView:
    """Reads records out of a block. Cheap to make; keeps nothing but offsets.

    Whatever gives data values may raise a LogqueueError when the data is outside memory and cannot
    be read; all else comes from the head.

    Attributes:
        head: The block; without the data values when it is split.
        has_data_only: Whether no record has any other text.
    """

    __slots__ = ("_columns", "_split", "count", "has_data_only", "head", "number_bits")

    def __init__(self, block: Block) -> None:
        """Look at a block.

        Raises:
            BlockError: Unknown version or column.
        """
        self._split: SplitBlock | None = None
        if not isinstance(block, bytes):
            self._split = block
            block = block.head
        version, text_bits, number_bits, count = _HEADER.unpack_from(block)
        if version != _VERSION or text_bits >> len(TEXTS) or number_bits >> len(NUMBER_COLUMNS):
            raise BlockError(f"block version {version} columns {text_bits:#x}/{number_bits:#x}")
        self.head = block
        self.count: int = count
        self.number_bits: int = number_bits
        self.has_data_only = text_bits == 1 << DATA
        present = _BITS[text_bits]
        at = 8 + 8 * count * number_bits.bit_count()
        base = at + 4 * count * len(present)
        columns: list[tuple[int, int]] = [(0, 0)] * len(TEXTS)
        for column in present:
            columns[column] = (at, base)
            at += 4 * count
            if column or self._split is None:
                base += _END.unpack_from(block, at - 4)[0]
        self._columns = columns

    def text(self, column: int, index: int) -> bytes:
        """One record's fragment in one column; b"" when absent."""
        at, base = self._columns[column]
        if not at:
            return b""
        if index:
            start, end = _SPAN.unpack_from(self.head, at + 4 * index - 4)
        else:
            start, end = 0, _END.unpack_from(self.head, at)[0]
        if not column and self._split is not None:
            return self._split.read(start, end)
        return self.head[base + start : base + end]

    def texts(self, index: int) -> Texts:
        """All fragments of one record."""
        text = self.text
        return text(DATA, index), text(TAG, index), text(NODE, index), text(META, index)

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

    def column(self, column: int, start: int = 0, end: int | None = None) -> list[bytes] | None:
        """Fragments of one column from place `start` to `end`, None when the column is unused."""
        at, base = self._columns[column]
        if not at:
            return None
        count = (self.count if end is None else end) - start
        block = self.head
        before = _END.unpack_from(block, at + 4 * start - 4)[0] if start else 0
        ends = struct_unpack_from(f"<{count}I", block, at + 4 * start)
        if not column and self._split is not None:
            block, base = self._split.locate(before, ends[-1] if count else before)
            base -= before
        texts = []
        at = base + before
        for end in ends:
            end += base
            texts.append(block[at:end])
            at = end
        return texts

    def texts_at(self, column: int, places: Sequence[int]) -> Sequence[bytes] | None:
        """Fragments of one column of some places, ascending; None when the column is unused."""
        at, base = self._columns[column]
        if not at:
            return None
        if isinstance(places, range):
            return self.column(column, places.start, places.stop)
        if not column and self._split is not None:
            return self._split_texts(places)
        head, texts = self.head, []
        for index in places:
            if index:
                start, end = _SPAN.unpack_from(head, at + 4 * index - 4)
            else:
                start, end = 0, _END.unpack_from(head, at)[0]
            texts.append(head[base + start : base + end])
        return texts

    def _split_texts(self, places: Sequence[int]) -> list[bytes]:
        """Data that is not in the head; what is not in memory is read in runs of neighbours."""
        split, texts = self._split, list[bytes]()
        assert split is not None
        if split.data.block_in_memory is not None:
            at = self._columns[DATA][0]
            found, base = split.locate(0, 0)
            for index in places:
                start, end = _SPAN.unpack_from(self.head, at + 4 * index - 4) if index else (0, 0)
                if not index:
                    (end,) = _END.unpack_from(self.head, at)
                texts.append(found[base + start : base + end])
            return texts
        start = 0
        for end in range(1, len(places) + 1):
            if end == len(places) or places[end] != places[end - 1] + 1:
                texts += self.column(DATA, places[start], places[end - 1] + 1) or ()
                start = end
        return texts

    def numbers_at(self, column: int, places: Sequence[int]) -> Sequence[int] | None:
        """One number column of some places, ascending; None when the block leaves it out."""
        if not self.number_bits >> column & 1:
            return None
        if isinstance(places, range):
            return self.numbers(column, places.start, places.stop)
        at, head = self._numbers_at(column), self.head
        return [_NUMBER.unpack_from(head, at + 8 * index)[0] for index in places]

    def used(self, column: int, start: int, end: int) -> list[bool] | None:
        """Whether each record from place `start` to `end` has a fragment in a column; None when the
        column is unused."""
        at, _ = self._columns[column]
        if not at:
            return None
        ends = struct_unpack_from(f"<{end - start}I", self.head, at + 4 * start)
        before = _END.unpack_from(self.head, at + 4 * start - 4)[0] if start else 0
        return [*map(gt, ends, chain((before,), ends))]

    def text_column(self, column: int) -> tuple[Sequence[int], bytes]:
        """One whole column as it is: where its fragments end, and all of them."""
        at, base = self._columns[column]
        if not at:
            return (0,) * self.count, b""
        ends = struct_unpack_from(f"<{self.count}I", self.head, at)
        if not column and self._split is not None:
            return ends, self._split.read(0, ends[-1])
        return ends, self.head[base : base + ends[-1]]

    def read_data(self, start: int, end: int) -> None:
        """Make sure that the data of neighbouring records can be read: a LogqueueError if not."""
        if self._split is not None:
            at = self._columns[DATA][0]
            before = _END.unpack_from(self.head, at + 4 * start - 4)[0] if start else 0
            self._split.locate(before, _END.unpack_from(self.head, at + 4 * end - 4)[0])

    def column_span(self, column: int, start: int, end: int) -> tuple[int, int]:
        """From where to where the fragments of one column reach, from place `start` to `end`, among
        all of the column; (0, 0) when it is unused."""
        at, _ = self._columns[column]
        if not at or start >= end:
            return 0, 0
        before = _END.unpack_from(self.head, at + 4 * start - 4)[0] if start else 0
        return before, _END.unpack_from(self.head, at + 4 * end - 4)[0]

    def may_have(self, column: int, start: int, end: int, needles: Iterable[bytes]) -> bool:
        """Whether one of some byte strings is in the fragments of a column from place `start` to
        `end`, as if they were one: where it is not, no fragment has it."""
        before, last = self.column_span(column, start, end)
        block, base = self.head, self._columns[column][1]
        if not column and self._split is not None:
            block, base = self._split.locate(before, last)
            base -= before
        return any(block.find(needle, base + before, base + last) >= 0 for needle in needles)

    def column_ends(self, column: int, start: int, end: int) -> tuple[bytes, int, int] | None:
        """The same as a block of these records alone has it: where the fragments end; and from
        where to where they reach among those of the column."""
        at, _ = self._columns[column]
        if not at:
            return None
        before = _END.unpack_from(self.head, at + 4 * start - 4)[0] if start else 0
        packed = self.head[at + 4 * start : at + 4 * end]
        last: int = _END.unpack_from(packed, len(packed) - 4)[0]
        if before:
            form = f"<{end - start}I"
            packed = struct_pack(form, *[e - before for e in struct_unpack_from(form, packed)])
        return packed, before, last

    def column_bytes(self, column: int, first: int, last: int) -> bytes:
        """A column's fragments from one offset up to another, one after the other; b"" for data
        that is not in the head."""
        if not column and self._split is not None:
            return b""
        base = self._columns[column][1]
        return self.head[base + first : base + last]

    def with_data(self, head: bytes, first: int, last: int) -> Block:
        """The block of some records: `head`, and the data between two offsets if it lacks that."""
        split = self._split
        if split is None:
            return head
        return SplitBlock(head, split.data, split.start + first, split.start + last)

    def number_bytes(self, column: int, start: int, end: int) -> bytes | None:
        """A number column from place `start` to `end` as a block has it, None when it has not."""
        if not self.number_bits >> column & 1:
            return None
        at = self._numbers_at(column)
        return self.head[at + 8 * start : at + 8 * end]

    def size(self, index: int) -> int:
        """Bytes of one record as the limits count them: compact data plus compact meta."""
        return size_at(self.head, index)

    def size_total(self) -> int:
        """Bytes of all records of the block."""
        return size_total(self.head)

    def numbers(
        self, column: int, start: int = 0, end: int | None = None
    ) -> tuple[int, ...] | None:
        """One number column from place `start` to `end`, None when the block leaves it out."""
        if not self.number_bits >> column & 1:
            return None
        count = (self.count if end is None else end) - start
        return struct_unpack_from(f"<{count}Q", self.head, self._numbers_at(column) + 8 * start)

    def number(self, column: int, index: int) -> int:
        """One record's number in one column; 0 when the block leaves the column out."""
        if not self.number_bits >> column & 1:
            return 0
        found: int = _NUMBER.unpack_from(self.head, self._numbers_at(column) + 8 * index)[0]
        return found

    def _numbers_at(self, column: int) -> int:
        before = self.number_bits & (1 << column) - 1
        return 8 + 8 * self.count * before.bit_count()


def is_bare(block: Block) -> bool:
    """Whether the records of a block have nothing but data, node and meta, and consecutive seqs."""
    head = block if isinstance(block, bytes) else block.head
    return not head[1] & _INDEXED and not head[2] and not head[3]


def has_tags(block: Block) -> bool:
    """Whether any record of a block has a tag."""
    return head_of(block)[1] >> TAG & 1 == 1


def tags_of(block: Block) -> list[bytes]:
    """The tag of each record of a block that has tags; b"" where a record has none."""
    _, _, number_bits, count = _HEADER.unpack_from(head_of(block))
    if count == 1 and not number_bits and isinstance(block, bytes):
        # Most often written by a producer that does not batch: worth a way of its own.
        start = 8 + 4 * block[1].bit_count() + _END.unpack_from(block, 8)[0]
        return [block[start : start + _END.unpack_from(block, 12)[0]]]
    tags = BlockView(block).column(TAG)
    assert tags is not None, "looked for where there are none"
    return tags


def size_at(block: Block, index: int) -> int:
    """Bytes of one record as the limits count them: compact data plus compact meta."""
    if not isinstance(block, bytes):
        block = block.head
    _, text_bits, number_bits, count = _HEADER.unpack_from(block)
    at = 8 + 4 * index
    if number_bits:
        at += 8 * count * number_bits.bit_count()
    start = 0
    if index:
        start, end = _SPAN.unpack_from(block, at - 4)
    else:
        (end,) = _END.unpack_from(block, at)
    size: int = end - start
    if text_bits >> META & 1:
        at += 4 * count * (text_bits & _BEFORE_META).bit_count()
        start, end = (
            _SPAN.unpack_from(block, at - 4) if index else (0, *_END.unpack_from(block, at))
        )
        size += end - start
    return size


def size_before(block: Block, index: int) -> int:
    """Bytes of all records in front of a place, as the limits count them."""
    if not index:
        return 0
    if not isinstance(block, bytes):
        block = block.head
    _, text_bits, number_bits, count = _HEADER.unpack_from(block)
    at = 4 + 8 * count * number_bits.bit_count() + 4 * index
    size: int = _END.unpack_from(block, at)[0]
    if text_bits >> META & 1:
        before = (text_bits & _BEFORE_META).bit_count()
        size += _END.unpack_from(block, at + 4 * count * before)[0]
    return size


def size_between(block: Block, start: int, end: int) -> int:
    """Bytes of the records of neighbouring places, as the limits count them."""
    if end - start == 1:
        return size_at(block, start)
    return size_before(block, end) - size_before(block, start)


def size_total(block: Block) -> int:
    """Bytes of all records of a block as the limits count them."""
    if not isinstance(block, bytes):
        block = block.head
    _, text_bits, number_bits, count = _HEADER.unpack_from(block)
    # The last end of a column is the length of the column.
    at = 4 + 8 * count * number_bits.bit_count() + 4 * count
    size: int = _END.unpack_from(block, at)[0]
    if text_bits >> META & 1:
        before = (text_bits & _BEFORE_META).bit_count()
        size += _END.unpack_from(block, at + 4 * count * before)[0]
    return size


def is_plain(block: Block) -> bool:
    """Whether a block has no column beyond data, tag, node, meta and its seqs and times: no record
    in it has a key, a group, a priority, a delay or a time to live of its own."""
    if not isinstance(block, bytes):
        block = block.head
    return block[1] < 1 << KEY and block[2] < 1 << DELAY and not block[3]


def is_moved(block: bytes) -> bool:
    """Whether a block brings its own seqs and times, as one does that was rewritten."""
    return block[2] & _MOVED != 0


def has_same_numbers(block: bytes, other: bytes) -> bool:
    """Whether two blocks use the same number columns."""
    return block[2:4] == other[2:4]


def join(parts: Sequence[bytes]) -> bytes:
    """The records of some blocks, in order, as one block with all their columns.

    Args:
        parts: Blocks with the same number columns, without their own seqs and times.
    """
    if {part[:8] for part in parts} == {_BARE_ONE}:
        # What producers write that do not batch: worth a way of its own.
        return pack_bare([part[12:] for part in parts])
    views = [BlockView(part) for part in parts]
    text_bits = reduce(or_, (part[1] for part in parts))
    number_bits = views[0].number_bits
    assert all(view.number_bits == number_bits for view in views), "joined only when alike"
    head: list[bytes] = []
    tail: list[bytes] = []
    for column in range(len(NUMBER_COLUMNS)):
        if number_bits >> column & 1:
            head.extend(view.number_bytes(column, 0, view.count) or b"" for view in views)
    for column in _BITS[text_bits]:
        ends: list[int] = []
        length = 0
        for view in views:
            its_ends, its_values = view.text_column(column)
            ends.extend([length + end for end in its_ends] if length else its_ends)
            tail.append(its_values)
            length += len(its_values)
        head.append(struct_pack(f"<{len(ends)}I", *ends))
    count = sum(view.count for view in views)
    return b"".join((_HEADER.pack(_VERSION, text_bits, number_bits, count), *head, *tail))


def select(view: BlockView, places: Sequence[int]) -> bytes:
    """Some records of a block as a block of their own, with all their columns. Costs by what is
    selected, however large the block is."""
    picked = [[view.text(column, place) for place in places] for column in TEXTS]
    return pack(
        [texts if any(texts) else None for texts in picked],
        numbers={
            column: [view.number(column, place) for place in places]
            for column in range(len(NUMBER_COLUMNS))
            if view.number_bits >> column & 1
        },
    )


def cut(view: BlockView, start: int, end: int) -> Block:
    """Neighbouring records of a block as a block of their own, with all their columns. Costs by
    what is cut out, however large the block is; and no record is looked at. Data outside memory
    stays where it is."""
    count = end - start
    text_bits = number_bits = 0
    arrays: list[bytes] = []
    ends: list[bytes] = []
    values: list[bytes] = []
    data_from = data_to = 0
    for column in range(len(NUMBER_COLUMNS)):
        array = view.number_bytes(column, start, end)
        if array is not None:
            number_bits |= 1 << column
            arrays.append(array)
    for column in TEXTS:
        part = view.column_ends(column, start, end)
        if part is None:
            continue
        packed, first, last = part
        if column == DATA:
            data_from, data_to = first, last
        if first < last or column == DATA:
            text_bits |= 1 << column
            ends.append(packed)
            values.append(view.column_bytes(column, first, last))
    header = _HEADER.pack(_VERSION, text_bits, number_bits, count)
    return view.with_data(b"".join((header, *arrays, *ends, *values)), data_from, data_to)


def read_string(fragment: bytes) -> str:
    """The text of a JSON string fragment (a tag or a node)."""
    return _strings.decode(fragment)


def write_string(text: str) -> bytes:
    """The JSON string fragment of a text."""
    return _encoder.encode(text)


def with_meta(block: bytes, meta: bytes) -> bytes:
    """The block of one record with another meta, which is not empty."""
    version, text_bits, number_bits, count = _HEADER.unpack_from(block)
    assert count == 1, "made for blocks of one record"
    at = 8 + 8 * number_bits.bit_count()
    numbers = block[8:at]
    present = _BITS[text_bits]
    start = at + 4 * len(present)
    texts: dict[int, bytes] = {}
    for column in present:
        end = start + _END.unpack_from(block, at)[0]
        texts[column] = block[start:end]
        at, start = at + 4, end
    texts[META] = meta
    columns = [texts[column] for column in sorted(texts)]
    header = _HEADER.pack(version, text_bits | 1 << META, number_bits, 1)
    return b"".join((header, numbers, *[_END.pack(len(text)) for text in columns], *columns))
