"""The grammar of `Range`, held against a naive reading of it."""

from __future__ import annotations

import pytest

from logqueue.server.http.byte_ranges import ByteRange, NoSuchBytes, part_of


def naive(start: str, last: str, total: int) -> tuple[int, int] | str | None:
    """What `bytes=start-last` comes to."""
    if not start and not last:
        return None
    if not start:
        first = max(total - int(last), 0)
        return (first, total) if int(last) and total else "nothing"
    if last and int(last) < int(start):
        return None
    stop = min(int(last) + 1, total) if last else total
    return (int(start), stop) if int(start) < total else "nothing"


@pytest.mark.parametrize("total", [0, 1, 2, 7])
def test_every_small_range(total: int) -> None:
    ends = ["", *map(str, range(9))]
    for start in ends:
        for last in ends:
            wanted = naive(start, last, total)
            found: tuple[int, int] | str | None
            try:
                part = part_of(f"bytes={start}-{last}".encode(), total)
                found = (*part,) if part is not None else None
            except NoSuchBytes:
                found = "nothing"
            assert found == wanted, (start, last, total)


@pytest.mark.parametrize(
    "header",
    [None, b"", b"bytes", b"bytes=", b"bytes=1", b"bytes=1-2,3-4", b"items=0-1", b"bytes=0x1-2",
     b"bytes=1--2", b"bytes=--1", b"bytes=1-2 x", b"bytes=" + b"1" * 20 + b"-", b"bytes=\xd9\xa1-"],
)  # fmt: skip
def test_what_is_passed_over(header: bytes | None) -> None:
    assert part_of(header, 100) is None


def test_blanks_and_case() -> None:
    assert part_of(b"BYTES = 1-2 ", 100) == ByteRange(1, 3)
