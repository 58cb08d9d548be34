"""What an archive and the logs behind it hold together, read from nothing but their files.

Owns: decoding segment files of a simulated disk. Must not know: how they came there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from logqueue import events as ev
from logqueue.events.block import DATA, SEQ, BlockView
from wal.format import Walk, decode_header, salt_of
from wal.testing.simfs import SimFileSystem

_SEGMENT = re.compile(r"(?:archive|data)/(jobs|leases)/(\d{20})\.wal")
FRAME_BYTES_MAX = 1 << 20


def segments(fs: SimFileSystem, log: str, *places: str) -> dict[int, bytes]:
    """The segments of a log in some places (`archive`, `data`; both when none is named), by id."""
    found: dict[int, bytes] = {}
    for path, data in fs.contents().items():
        match = _SEGMENT.fullmatch(path)
        if match and match[1] == log and (not places or path.partition("/")[0] in places):
            id = int(match[2])
            # The log's own may still grow; what is archived is whole.
            if id not in found or path.startswith("archive/"):
                found[id] = data
    return found


def transactions(data: bytes) -> Iterator[ev.Transaction]:
    """The transactions of a segment, up to where no whole frame stands."""
    _, header = decode_header(data)
    if header is not None:
        salt = salt_of(header.identity, header.id)
        for frame in Walk(data, salt, header.first, header.id, FRAME_BYTES_MAX):
            yield ev.decode(frame.payload)


def appended(fs: SimFileSystem) -> dict[str, set[tuple[int, object]]]:
    """Every record that the archive or the log tells of: seq and data, by name of its topic."""
    names: dict[int, str] = {}
    found: dict[str, set[tuple[int, object]]] = {}
    for _, data in sorted(segments(fs, "jobs").items()):
        for transaction in transactions(data):
            for event in transaction.events:
                if isinstance(event, ev.TopicCreated):
                    names[event.topic] = event.name
                elif isinstance(event, ev.Checkpointed):
                    names |= {kept.topic: kept.name for kept in event.topics}
                elif isinstance(event, ev.RecordsAppended | ev.RecordsMoved):
                    told = found.setdefault(names[event.topic], set())
                    told |= {*_records(event)}
    return found


def _records(event: ev.RecordsAppended | ev.RecordsMoved) -> Iterator[tuple[int, object]]:
    view = BlockView(event.block)
    seqs = view.numbers(SEQ)
    if seqs is None:
        assert isinstance(event, ev.RecordsAppended)
        seqs = tuple(range(event.first_seq, event.first_seq + event.count))
    for index, seq in enumerate(seqs):
        yield seq, msgspec.json.decode(view.text(DATA, index))


def require_no_gap(fs: SimFileSystem, *, from_first: bool) -> None:
    """No segment of either log may be missing between the oldest and the newest.

    Args:
        fs: The disk.
        from_first: Nothing has been let go, so the oldest is the first.
    """
    for log in ("jobs", "leases"):
        ids = sorted(segments(fs, log))
        first = 1 if from_first else ids[0]
        assert ids == [*range(first, ids[-1] + 1)], f"segments of {log} are missing: {ids}"
