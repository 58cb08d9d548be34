"""Where the whole frames of a growing segment end, whatever is behind them."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

import pytest

from wal import HEADER_BYTES, SegmentHeader, encode_header, find_whole_frames, salt_of
from wal.format import encode_frame
from wal.testing.simfs import SimFileSystem

IDENTITY = bytes(range(16))
HEADER = SegmentHeader(3, 7, IDENTITY)
SALT = salt_of(IDENTITY, 3)


def found(data: bytes, piece_bytes: int) -> tuple[int, int]:
    """The end of the whole frames, and the number of the last."""
    files = SimFileSystem(Random(0))
    files.mkdir("d")
    file = files.create("d/f")
    file.pwrite(encode_header(HEADER) + data, 0)
    steps: Generator[None, None, tuple[int, int]] = find_whole_frames(file, HEADER, piece_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: tuple[int, int] = end.value
            return result


def frames(sizes: list[int]) -> list[bytes]:
    """Frames with payloads of these sizes."""
    return [encode_frame(bytes([n % 251]) * size, 7 + n, 6, SALT) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("piece_bytes", [64, 100, 4096])
@pytest.mark.parametrize(
    "tail", [b"", bytes(8), bytes(5000), b"\1" * 100, frames([300, 9])[0][:-8], frames([4])[0]]
)
def test_all_whole_frames_and_nothing_behind(piece_bytes: int, tail: bytes) -> None:
    for sizes in ([], [0], [10, 500, 3, 64, 10_000, 1], [700] * 9):
        good = b"".join(frames(sizes))
        assert found(good + tail, piece_bytes) in (
            (HEADER_BYTES + len(good), 6 + len(sizes)),
            # The tail may be the first frame itself.
            (HEADER_BYTES + len(good + tail), 7)
            if not sizes and tail == frames([4])[0]
            else (0, 0),
        )


def test_every_cut_and_every_flipped_byte() -> None:
    parts = frames([5, 300, 40])
    data = b"".join(parts)
    ends = [HEADER_BYTES + sum(map(len, parts[:count])) for count in range(4)]
    for cut in range(0, len(data), 3):
        whole = sum(end <= HEADER_BYTES + cut for end in ends[1:])
        assert found(data[:cut], 128) == (ends[whole], 6 + whole)
    for at in range(0, len(data), 7):
        hurt = bytearray(data)
        hurt[at] ^= 4
        whole = sum(end <= HEADER_BYTES + at for end in ends[1:])
        assert found(bytes(hurt), 128) == (ends[whole], 6 + whole)
