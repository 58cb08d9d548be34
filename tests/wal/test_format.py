"""The bytes: every byte of a header and a frame counts, and zeros are nothing."""

import struct
from random import Random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal.format import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    End,
    HeaderState,
    SegmentHeader,
    Walk,
    decode_header,
    encode_frame,
    encode_header,
    frame_bytes,
    frames_behind,
    is_zero,
    salt_of,
)

IDENTITY = bytes(range(16))
SALT = salt_of(IDENTITY, 7)
PAGE = bytes(HEADER_BYTES)
BOUND = 1000


def walk(frames: bytes, first: int = 5) -> tuple[list[bytes], Walk]:
    steps = Walk(PAGE + frames, SALT, first, 7, BOUND)
    return [frame.payload for frame in steps], steps


def test_the_frame_as_drawn() -> None:
    fields = struct.pack("<IIQQ", 0xF7A3C159, 3, 5, 2)
    check = crc32(fields, SALT)
    body = b"abc" + bytes(5)
    drawn = fields + struct.pack("<II", crc32(body, check), check) + body
    assert encode_frame(b"abc", 5, 2, SALT) == drawn
    assert len(drawn) == frame_bytes(3) == 40


def test_the_header_as_drawn() -> None:
    fields = b"WALSEG\r\n" + struct.pack("<IIQQ", 1, 0, 7, 5) + IDENTITY
    page = fields + struct.pack("<I", crc32(fields))
    assert encode_header(SegmentHeader(7, 5, IDENTITY)) == page.ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("magic", 0),
        ("length", 4),
        ("length, high byte", 7),
        ("number", 8),
        ("watermark", 16),
        ("crc", 24),
        ("header check", 28),
        ("first of payload", 32),
        ("last of payload", 34),
        ("first of padding", 35),
        ("last of padding", 39),
    ],
)
def test_one_bad_byte_in_a_frame(name: str, offset: int) -> None:
    good = encode_frame(b"abc", 5, 4, SALT)
    bad = bytearray(good)
    bad[offset] ^= 0x10
    frames, steps = walk(bytes(bad) + encode_frame(b"next", 6, 5, SALT))
    assert frames == []
    assert (steps.end, steps.offset, steps.number) == (End.BAD, HEADER_BYTES, 5)


def test_every_bit_of_a_frame() -> None:
    good = encode_frame(b"abc", 5, 4, SALT)
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        frames, steps = walk(bytes(bad))
        assert (frames, steps.end) == ([], End.BAD), f"bit {bit}"


def test_every_byte_of_a_header() -> None:
    good = encode_header(SegmentHeader(7, 5, IDENTITY))
    assert decode_header(good) == (HeaderState.OK, SegmentHeader(7, 5, IDENTITY))
    for offset in range(HEADER_BYTES):
        bad = bytearray(good)
        bad[offset] ^= 1
        assert decode_header(bytes(bad)) == (HeaderState.TORN, None), f"byte {offset}"


def test_states_of_a_header_page() -> None:
    page = encode_header(SegmentHeader(7, 5, IDENTITY))
    other = b"WALSEG\r\n" + struct.pack("<IIQQ", 2, 0, 7, 5) + IDENTITY
    future = (other + struct.pack("<I", crc32(other))).ljust(HEADER_BYTES, b"\0")
    rows = [
        (b"", HeaderState.ABSENT),
        (bytes(10), HeaderState.ABSENT),
        (PAGE, HeaderState.ABSENT),
        (page[:100], HeaderState.TORN),
        (page[:512].ljust(HEADER_BYTES, b"\0"), HeaderState.OK),
        (future, HeaderState.FOREIGN),
    ]
    for data, state in rows:
        assert decode_header(data)[0] is state


@pytest.mark.parametrize(
    ("tail", "end", "problem"),
    [
        (b"", End.CLEAN, ""),
        (bytes(8), End.ZEROS, ""),
        (bytes(4096), End.ZEROS, ""),
        (bytes(31) + b"\1", End.BAD, "no frame begins here"),
        (bytes(100) + b"\1", End.BAD, "no frame begins here"),
        (b"\1", End.BAD, "inside a frame"),
        (encode_frame(b"x" * 50, 6, 5, SALT)[:31], End.BAD, "inside a frame"),
        (encode_frame(b"x" * 50, 6, 5, SALT)[:64], End.BAD, "over the bound or the file"),
        (encode_frame(b"x" * (BOUND + 1), 6, 5, SALT), End.BAD, "over the bound"),
        (encode_frame(b"x" * 50, 7, 5, SALT), End.MISNUMBERED, "frame 7"),
        (encode_frame(b"x" * 50, 5, 4, SALT), End.MISNUMBERED, "frame 5"),
        (encode_frame(b"x", 6, 5, SALT + 1), End.BAD, "fails its check"),
    ],
)
def test_how_a_walk_ends(tail: bytes, end: End, problem: str) -> None:
    first = encode_frame(b"first", 5, 4, SALT)
    frames, steps = walk(first + tail)
    assert frames == [b"first"]
    assert steps.end is end
    assert problem in steps.problem
    assert (steps.number, steps.offset) == (6, HEADER_BYTES + len(first))


def test_a_frame_of_another_segment_is_no_frame() -> None:
    """So a payload that carries a log does not pass for frames of this one."""
    other = encode_frame(b"abc", 9, 8, salt_of(IDENTITY, 8))
    mine = encode_frame(b"abc", 9, 6, SALT)
    torn = b"\1" * 8
    assert frames_behind(PAGE + torn + other, HEADER_BYTES, SALT, 5) == (False, 0)
    assert frames_behind(PAGE + torn + mine, HEADER_BYTES, SALT, 5) == (True, 6)
    assert frames_behind(PAGE + torn + b"1234" + mine, HEADER_BYTES, SALT, 5) == (False, 0)
    assert frames_behind(PAGE + torn + mine[:-1], HEADER_BYTES, SALT, 5) == (False, 0)


def test_a_payload_full_of_magic_is_scanned_in_linear_time() -> None:
    hostile = struct.pack("<IIQQII", 0xF7A3C159, 900_000, 9, 1, 0, 0) * 30_000
    torn = encode_frame(hostile, 5, 4, SALT)[:-8]
    assert frames_behind(PAGE + torn, HEADER_BYTES, SALT, 5) == (False, 0)


def test_is_zero() -> None:
    rows = [(b"", True), (b"\0", True), (bytes(5000), True), (bytes(4999) + b"\1", False)]
    for data, expected in rows:
        assert is_zero(data) is expected


@given(st.lists(st.binary(max_size=100), max_size=8), st.integers(1, 1 << 60))
def test_what_was_encoded_is_decoded(payloads: list[bytes], first: int) -> None:
    data = b"".join(
        encode_frame(body, first + at, first + at - 1, SALT) for at, body in enumerate(payloads)
    )
    assert len(data) == sum(frame_bytes(len(body)) for body in payloads)
    frames, steps = walk(data, first)
    assert frames == payloads
    assert (steps.end, steps.number) == (End.CLEAN, first + len(payloads))


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.data())
def test_a_changed_byte_never_changes_a_payload(payloads: list[bytes], data: st.DataObject) -> None:
    """The frames before the damage are given, the damaged one and those behind are not."""
    encoded = [encode_frame(body, 5 + at, 4 + at, SALT) for at, body in enumerate(payloads)]
    whole = bytearray(b"".join(encoded))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    hit = next(n for n in range(len(encoded)) if at < sum(map(len, encoded[: n + 1])))
    frames, steps = walk(bytes(whole))
    assert frames == payloads[:hit]
    assert steps.end is not End.CLEAN


@given(st.binary(max_size=300))
def test_noise_is_never_a_frame(noise: bytes) -> None:
    frames, steps = walk(noise)
    assert frames == []
    assert steps.offset == HEADER_BYTES
    assert steps.end is (End.CLEAN if not noise else End.ZEROS if is_zero(noise) else End.BAD)


def test_cutting_a_log_anywhere_gives_a_prefix() -> None:
    rng = Random(1)
    payloads = [rng.randbytes(rng.randrange(40)) for _ in range(6)]
    whole = b"".join(encode_frame(p, 5 + at, 4 + at, SALT) for at, p in enumerate(payloads))
    for cut in range(len(whole)):
        frames, _ = walk(whole[:cut])
        assert frames == payloads[: len(frames)]
        assert cut - FRAME_HEADER_BYTES - 48 < sum(frame_bytes(len(p)) for p in frames) <= cut
