"""Records as JSON, encoded once and shared by all who read them.

Owns: what a record looks like to readers, and a bounded memory of encoded batches. A page is then
a join of slices: no record is encoded again for the next reader of the same place. Must not know:
replies, frames, cursors.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from logqueue.core.batch import Batch, Run
from logqueue.core.reading import ReadPage, readable
from logqueue.core.topic import Topic
from logqueue.errors import StorageUnreadable
from logqueue.events.block import DATA, META, NODE, TAG, BlockView, size_before, size_between
from logqueue.events.split_block import head_of

TAGS_SHOWN, META_SHOWN, DATA_SHOWN = 1, 2, 4

MEMORY_BYTES_MAX = 32 << 20
SECTION_RECORDS = 512
"""Larger batches are encoded in sections, so that a reader of one record never waits for 10 000."""

SECTION_BYTES_MAX = 1 << 20
"""Sections of larger records are not kept: copying them costs as much as encoding them."""

PART_BYTES = 256 << 10
"""Of a page too large for one step, so much is encoded in each, or one larger record."""

_ENTRY_BYTES = 300


def shown(*, tags: bool, meta: bool, data: bool = True) -> int:
    """What a reader wants to see of records, as one number."""
    return TAGS_SHOWN * tags | META_SHOWN * meta | DATA_SHOWN * data


class _Section(NamedTuple):
    """Some records of a batch, joined with commas; `ends` has the end of each one, `head` is that
    of the block they come from."""

    text: bytes
    ends: Sequence[int]
    head: bytes


_Key = tuple[int, int] | tuple[int, int, int, int, int]


class RecordTexts:
    """Encoded records, the least recently used of them forgotten first."""

    def __init__(self, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._sections: OrderedDict[_Key, _Section] = OrderedDict()
        self.bytes_kept = 0

    def of_page(self, topic: Topic, page: ReadPage, show: int) -> tuple[ReadPage, bytes]:
        """`join` for a page of a topic. The page ends before the first record whose data is wanted
        and cannot be read.

        Raises:
            StorageUnreadable: The first record cannot be read.
        """
        try:
            return page, self.join(topic.number, page.runs, show)
        except StorageUnreadable:
            page = readable(topic, page)
            return page, self.join(topic.number, page.runs, show)

    def join(self, topic: int, runs: Sequence[Run], show: int) -> bytes:
        """The JSON objects of a page's records, separated by commas.

        Args:
            topic: Number of the topic instance that the batches belong to.
            runs: The page's records.
            show: See `shown`.
        """
        owner = topic << 3 | show
        parts: list[bytes] = []
        for batch, start, end in runs:
            if batch.count == 1:
                parts.append(self._single(owner, batch, show))
                continue
            if batch.count <= SECTION_RECORDS:
                parts.append(self._slice(owner, batch, 0, start, end, show))
                continue
            while start < end:
                number = start // SECTION_RECORDS
                stop = min(end, (number + 1) * SECTION_RECORDS)
                parts.append(self._slice(owner, batch, number, start, stop, show))
                start = stop
        return parts[0] if len(parts) == 1 else b",".join(parts)

    def _single(self, owner: int, batch: Batch, show: int) -> bytes:
        """What a producer that does not batch has sent: `_slice`, in short."""
        key = (owner, batch.first_seq)
        section = self._sections.get(key)
        if section is not None and section.head is head_of(batch.block):
            self._sections.move_to_end(key)
            return section.text
        records = encode_records(batch, 0, 1, show)
        if len(records[0]) >= SECTION_BYTES_MAX:
            return records[0]
        return self._keep(key, records, head_of(batch.block)).text

    def _slice(
        self, owner: int, batch: Batch, number: int, start: int, end: int, show: int
    ) -> bytes:
        # Removed records are encoded too; a record that was replaced is in another block.
        key = (owner, batch.first_seq, batch.last_seq, batch.count, number)
        section = self._sections.get(key)
        if section is None or section.head is not head_of(batch.block):
            first = number * SECTION_RECORDS
            stop = min(batch.count, first + SECTION_RECORDS)
            size = size_between(batch.block, first, stop)
            if size > SECTION_BYTES_MAX:
                return b",".join(encode_records(batch, start, end, show))
            try:
                records = encode_records(batch, first, stop, show)
            except StorageUnreadable:
                # Perhaps it is another record of the section that cannot be read.
                return b",".join(encode_records(batch, start, end, show))
            section = self._keep(key, records, head_of(batch.block))
        else:
            self._sections.move_to_end(key)
        text, ends = section.text, section.ends
        start -= number * SECTION_RECORDS
        end -= number * SECTION_RECORDS
        if start == 0:
            return text if end == len(ends) else text[: ends[end - 1]]
        return text[ends[start - 1] + 1 : ends[end - 1]]

    def _keep(self, key: _Key, records: list[bytes], head: bytes) -> _Section:
        if len(records) == 1:
            section = _Section(records[0], (len(records[0]),), head)
        else:
            # In front of each record but the first there is a comma.
            totals = accumulate(map(len, records))
            ends = array("I", [total + commas for commas, total in enumerate(totals)])
            section = _Section(b",".join(records), ends, head)
        stale = self._sections.pop(key, None)
        if stale is not None:
            self.bytes_kept -= _size(stale)
        self._sections[key] = section
        self.bytes_kept += _size(section)
        while self.bytes_kept > self._bytes_max:
            _, oldest = self._sections.popitem(last=False)
            self.bytes_kept -= _size(oldest)
        return section


def _size(section: _Section) -> int:
    return len(section.text) + 4 * len(section.ends) + _ENTRY_BYTES


_MEMBERS = (
    (NODE, b',"$node":', 0),
    (TAG, b',"$tag":', TAGS_SHOWN),
    (DATA, b',"data":', DATA_SHOWN),
    (META, b',"meta":', META_SHOWN),
)


def encode_records(batch: Batch, start: int, end: int, show: int) -> list[bytes]:
    """The JSON objects of neighbouring places of a batch, whether they are live or not."""
    view = BlockView(batch.block)
    numbers = zip(batch.seqs_at(start, end), batch.times_at(start, end), strict=True)
    columns = [[b'{"$seq":%d,"$ts":%d' % pair for pair in numbers]]
    for column, name, needed in _MEMBERS:
        if show & needed == needed:
            texts = view.column(column, start, end)
            if texts is not None:
                columns.append([name + text if text else b"" for text in texts])
    return [b"".join(row) + b"}" for row in zip(*columns, strict=True)]


def encode_in_parts(runs: Iterable[Run], show: int) -> Iterator[bytes]:
    """`RecordTexts.join` for a page too large for one step: its text bit by bit, a step for each.

    Nothing of it is kept for other readers. Records stay readable between two steps, whatever
    becomes of them: a batch only ever marks its records as removed.
    """
    texts: list[bytes] = []
    size = 0
    for batch, start, end in runs:
        while start < end:
            stop = _fitting(batch, start, end, PART_BYTES - size)
            texts += encode_records(batch, start, stop, show)
            size += size_between(batch.block, start, stop)
            start = stop
            if size >= PART_BYTES or start < end:
                yield b",".join(texts)
                # The next part begins with a comma.
                texts, size = [b""], 0
    if size or not any(texts):
        yield b",".join(texts)


def _fitting(batch: Batch, start: int, end: int, room: int) -> int:
    """The place behind the neighbouring records that come next: what fits, but one at least."""
    room += size_before(batch.block, start)
    if size_before(batch.block, end) <= room:
        return end
    places = range(start, end)
    fitting = bisect_right(places, room, key=lambda place: size_before(batch.block, place))
    return max(start + fitting - 1, start + 1)


def bytes_of(runs: Iterable[Run]) -> int:
    """Bytes of a page's records as the limits count them."""
    return sum(size_between(batch.block, start, end) for batch, start, end in runs)
