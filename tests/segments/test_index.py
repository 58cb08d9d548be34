"""The index of a segment: its bytes, and making it piece by piece."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.segments.index import (
    IndexBuilder,
    IndexDamaged,
    SegmentDamaged,
    decode_index,
    encode_index,
)
from logqueue.segments.known import KnownTopics
from logqueue.segments.payloads import payloads
from tests.segments.histories import History, indexes_of
from wal.format import End


@pytest.fixture(scope="module")
def history() -> History:
    history = History(5)
    history.live(60)
    return history


@pytest.fixture(scope="module")
def segment(history: History) -> bytes:
    """A sealed one with some frames."""
    return history.segments["jobs"][3]


def built(data: bytes) -> IndexBuilder:
    builder = IndexBuilder(data[:4096], "jobs")
    builder.feed(data[4096:])
    return builder


def test_an_index_survives_its_bytes(history: History) -> None:
    for index in indexes_of(history.segments["jobs"]):
        data = encode_index(index)
        assert decode_index(data) == index
        assert data.count(b"\n") == 2


def test_a_torn_or_changed_index_is_noticed(segment: bytes) -> None:
    data = encode_index(built(segment).index())
    rng = Random(1)
    for length in [0, 1, len(data) - 1, *(rng.randrange(len(data)) for _ in range(50))]:
        with pytest.raises(IndexDamaged):
            decode_index(data[:length])
    ending = range(data.index(b"\n"), len(data))
    for place in [*(rng.randrange(len(data)) for _ in range(50)), *ending]:
        changed = bytes([data[place] ^ 1 << (7 if place in ending else rng.randrange(8))])
        with pytest.raises(IndexDamaged):
            decode_index(data[:place] + changed + data[place + 1 :])
    with pytest.raises(IndexDamaged, match="version"):
        index = built(segment).index()
        index.version = 99
        decode_index(encode_index(index))


@pytest.mark.parametrize("seed", range(5))
def test_piece_by_piece_it_is_the_same(history: History, seed: int) -> None:
    rng = Random(seed)
    indexes = indexes_of(history.segments["jobs"])
    known = KnownTopics()
    for index in indexes:
        data = history.segments["jobs"][index.segment]
        builder = IndexBuilder(data[:4096], "jobs", known=known)
        end = builder.bytes
        while end < len(data):
            end = min(len(data), end + rng.randrange(1, 900))
            builder.feed(data[builder.bytes : end])
            early = builder.index()
            assert early.bytes == builder.bytes
        assert builder.index() == index
        known.add(index.learned, index.routers)


def test_an_index_that_was_taken_does_not_change_later(segment: bytes) -> None:
    builder = IndexBuilder(segment[:4096], "jobs")
    taken = []
    for end in range(4096, len(segment) + 1, 500):
        builder.feed(segment[builder.bytes : end])
        index = builder.index()
        taken.append((index, encode_index(index)))
    builder.feed(segment[builder.bytes :])
    assert all(encode_index(index) == data for index, data in taken)


def test_an_empty_segment_has_an_empty_index(segment: bytes) -> None:
    for data in (segment[:4096], segment[:4096] + bytes(5000)):
        index = built(data).index()
        assert (index.bytes, index.last_frame) == (4096, index.first_frame - 1)
        assert not index.topics and not index.first_order
        assert [*payloads(data, "x")] == []


def test_a_torn_tail_is_left_out(segment: bytes) -> None:
    whole = [*payloads(segment, "x")]
    torn = segment[: whole[-1][0] + 17]
    builder = built(torn)
    assert builder.end is End.BAD and builder.bytes == whole[-1][0]
    assert [*payloads(torn, "x")] == whole[:-1]


def test_damage_is_told_with_its_place(segment: bytes) -> None:
    index = built(segment).index()
    whole = [*payloads(segment, "x")]
    place = whole[1][0] + 40
    changed = segment[:place] + bytes([segment[place] ^ 1]) + segment[place + 1 :]
    with pytest.raises(SegmentDamaged, match=r"^x: damaged at byte \d+: the frame fails") as error:
        [*payloads(changed, "x", length=index.bytes, checksum=index.crc32)]
    assert error.value.offset == whole[1][0]
    with pytest.raises(SegmentDamaged, match="not those that were indexed"):
        [*payloads(segment, "x", length=index.bytes, checksum=index.crc32 ^ 1)]
    with pytest.raises(SegmentDamaged, match="header"):
        IndexBuilder(b"x" + segment[1:4096], "jobs")
    with pytest.raises(SegmentDamaged, match="header"):
        [*payloads(segment[:100], "x")]
