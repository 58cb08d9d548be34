"""Recovery: the decision table, every combination of it, and each case with real bytes."""

import itertools
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from wal import Frame, Log, WalCorrupt, WalFull
from wal.files import OsFile, OsFileSystem
from wal.format import HEADER_BYTES, End, HeaderState, encode_frame, frame_bytes, salt_of
from wal.recovery import TABLE, Facts, Position, RecoveryOutcome, decide, matches, survey
from wal.segment import segment_path
from wal.testing.simfs import SimCrash, SimFileSystem

BOOLS = (False, True)


def combinations() -> list[Facts]:
    return [
        Facts(*values)
        for values in itertools.product(
            Position, BOOLS, HeaderState, BOOLS, BOOLS, End, BOOLS, BOOLS, BOOLS
        )
    ]


def impossible(facts: Facts) -> str | None:
    """Why these facts cannot stand together, in terms of how `survey` gathers them."""
    oldest = facts.position in (Position.ONLY, Position.FIRST)
    if facts.header is not HeaderState.OK and facts.end is not End.CLEAN:
        return "without a header nothing is walked"
    if facts.header is HeaderState.OK and facts.body:
        return "body is asked only of segments without a header"
    if facts.end is not End.BAD and facts.behind:
        return "frames behind are looked for behind damage only"
    if oldest and not facts.joined:
        return "the oldest segment joins nothing: those that are missing have facts of their own"
    inner = facts.position in (Position.FIRST, Position.MIDDLE)
    if facts.proven and inner and not facts.behind:
        return "the note tells of the end of the log"
    if facts.position in (Position.MIDDLE, Position.LAST) and not facts.anchored:
        return "a segment before it says where numbering stands"
    return None


def test_exactly_one_row_answers_each_combination() -> None:
    used = set()
    possible = 0
    for facts in combinations():
        rows = [row for row in TABLE if matches(row, facts)]
        if impossible(facts) is None:
            possible += 1
            assert len(rows) == 1, f"{[row.label for row in rows]} for {facts}"
            used.add(rows[0].label)
    assert used == {row.label for row in TABLE}
    assert possible == 448


def test_laws_of_the_table() -> None:
    """What must hold whatever the rows say."""
    tail = (Position.ONLY, Position.LAST, Position.BEFORE_UNBEGUN)
    for facts in combinations():
        if impossible(facts) is not None:
            continue
        outcome = decide(facts).outcome
        if outcome in (RecoveryOutcome.CUT, RecoveryOutcome.DISCARD):
            assert facts.position in tail, "only the tail is ever changed"
            assert not facts.proven, "what was synced is never cut"
            assert not facts.body
            assert not (facts.same_boot and facts.behind), "a kill leaves no holes"
        if outcome is RecoveryOutcome.KEEP:
            assert facts.header is HeaderState.OK
            assert facts.end in (End.CLEAN, End.ZEROS)
            assert facts.joined
        if outcome is RecoveryOutcome.DISCARD:
            assert facts.header in (HeaderState.ABSENT, HeaderState.TORN)
            assert facts.anchored


# The rows again, as a directory would show them. `make` gets three segments of two frames each,
# closed cleanly; every frame has 8 payload bytes and so takes 40.
FRAME = frame_bytes(8)


def flip(path: str, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x40]))


def put(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


class Disk:
    """Segments 1 to 3 with frames 1-2, 3-4, 5-6, and words for hurting them."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        log = Log.open(directory, random_bytes=lambda n: b"i" * n)
        for number in range(1, 7):
            log.append(b"frame %02d" % number, sync=True)
            log.step()
            if number in (2, 4):
                log.roll()
        log.close()
        self.identity = b"i" * 16

    def path(self, id: int) -> str:
        return segment_path(self.directory, id)

    def empty(self, id: int, data: bytes = b"") -> None:
        Path(self.path(id)).write_bytes(data)

    def frame(self, number: int, watermark: int, id: int = 3) -> bytes:
        body = b"frame %02d" % number
        return encode_frame(body, number, watermark, salt_of(self.identity, id))

    def header(self, id: int) -> bytes:
        return Path(self.path(id)).read_bytes()[:HEADER_BYTES]


END = HEADER_BYTES + 2 * FRAME
Hurt = Callable[[Disk], object]


def each(*hurts: Hurt) -> Hurt:
    def all_of_them(disk: Disk) -> None:
        for hurt in hurts:
            hurt(disk)

    return all_of_them


def lose(id: int) -> Hurt:
    return lambda disk: os.remove(disk.path(id))


def note(disk: Disk) -> None:
    """Be a directory of a version that wrote no note of what must be there."""
    os.remove(os.path.join(disk.directory, "HEAD"))


def reboot(disk: Disk) -> None:
    Path(disk.directory, "LOCK").write_text("1 another-boot\n")


CASES: list[tuple[str, Hurt, int | None]] = [
    # label of the row, what happened, frames kept (None: refused)
    ("K1", lambda d: None, 6),
    ("K1", lambda d: put(d.path(3), END, bytes(4096)), 6),
    ("K1", lambda d: put(d.path(1), END, bytes(4096)), 6),
    ("K1", each(lambda d: os.remove(d.path(1)), note), 6),
    ("H3", lambda d: os.remove(d.path(1)), None),
    ("H1", lambda d: put(d.path(2), 0, d.header(1)), None),
    ("H1", lambda d: put(d.path(3), 0, d.header(1)), None),
    ("H2", lambda d: put(d.path(3), 0, bytes(HEADER_BYTES)), None),
    ("H2", lambda d: flip(d.path(1), 20), None),
    ("H3", lambda d: d.empty(2), None),
    ("H4", each(lose(1), lose(2), lambda d: d.empty(3), note), None),
    ("H6", lambda d: d.empty(3), None),
    ("H6", lambda d: os.remove(d.path(3)), None),
    ("H6", each(lose(1), lose(2), lose(3)), None),
    ("S1", lambda d: os.remove(d.path(3)), None),
    ("S1", each(lose(2), lose(3)), None),
    ("S1", lambda d: os.truncate(d.path(3), HEADER_BYTES + FRAME), None),
    ("S1", lambda d: os.truncate(d.path(3), HEADER_BYTES), None),
    ("S1", lambda d: put(d.path(3), HEADER_BYTES + FRAME, bytes(FRAME)), None),
    ("H5", lambda d: d.empty(4), 6),
    ("H5", lambda d: d.empty(4, bytes(9000)), 6),
    ("H5", lambda d: d.empty(4, b"WALSEG" + bytes(9000)), 6),
    ("H5", each(lambda d: d.empty(4), lambda d: d.empty(5)), 6),
    ("H5", lambda d: d.empty(5), 6),
    ("H2", lambda d: d.empty(4, bytes(HEADER_BYTES) + b"x"), None),
    ("J1", lambda d: os.remove(d.path(2)), None),
    ("J1", lambda d: os.truncate(d.path(2), HEADER_BYTES + FRAME), None),
    ("D1", lambda d: flip(d.path(1), HEADER_BYTES + 36), None),
    ("D1", lambda d: flip(d.path(2), END - 2), None),
    ("D1", lambda d: os.truncate(d.path(2), END - 8), None),
    ("D1", lambda d: put(d.path(2), END, b"x" * 40), None),
    ("D2", lambda d: flip(d.path(3), HEADER_BYTES + 36), None),
    ("D2", each(lambda d: flip(d.path(3), HEADER_BYTES + 36), reboot), None),
    ("D2", each(lambda d: flip(d.path(3), HEADER_BYTES + 36), lambda d: d.empty(4)), None),
    ("D3", lambda d: put(d.path(3), END, bytes(FRAME) + d.frame(8, 6)), None),
    ("T1", each(lambda d: put(d.path(3), END, bytes(FRAME) + d.frame(8, 6)), reboot), 6),
    ("D2", each(lambda d: put(d.path(3), END, bytes(FRAME) + d.frame(8, 7)), reboot), None),
    ("T2", lambda d: put(d.path(3), END, d.frame(7, 6)[:36]), 6),
    ("T2", lambda d: put(d.path(3), END, b"x"), 6),
    ("T2", lambda d: put(d.path(3), END, bytes(8000) + b"x"), 6),
    ("D2", lambda d: flip(d.path(3), END - 2), None),
    ("D2", each(lambda d: flip(d.path(3), END - 2), reboot), None),
    ("D2", lambda d: os.truncate(d.path(3), END - 2), None),
    ("T2", each(lambda d: flip(d.path(3), END - 2), note), 5),
    ("T2", each(lambda d: os.truncate(d.path(3), END - 2), note), 5),
    ("T2", each(lambda d: os.truncate(d.path(3), END - 2), lambda d: d.empty(4), note), 5),
    ("N1", lambda d: put(d.path(3), END, d.frame(8, 6)), None),
    ("N1", lambda d: put(d.path(3), END, d.frame(6, 5)), None),
]  # fmt: skip


def tree(directory: str) -> dict[str, bytes]:
    return {name: Path(directory, name).read_bytes() for name in sorted(os.listdir(directory))}


@pytest.mark.parametrize(("label", "hurt", "kept"), CASES)
def test_each_case_on_a_real_directory(
    tmp_path: Path, label: str, hurt: Hurt, kept: int | None
) -> None:
    disk = Disk(str(tmp_path / "log"))
    hurt(disk)
    boot = OsFileSystem().boot_id()
    same = Path(disk.directory, "LOCK").read_text().split()[-1] == boot
    findings = list(survey(OsFileSystem(), disk.directory, same_boot=same, frame_bytes_max=1 << 20))
    assert label in [finding.row.label[:2] for finding in findings]
    before = tree(disk.directory)
    if kept is None:
        with pytest.raises(WalCorrupt) as caught:
            Log.open(disk.directory)
        assert os.path.dirname(caught.value.file) == disk.directory
        assert "nothing was changed" in str(caught.value)
        assert tree(disk.directory) == before, "a refused log is left as it was"
    else:
        for _ in range(2):
            log = Log.open(disk.directory)
            assert [frame.number for frame in log.read()][-1] == kept
            assert log.durable == log.written == log.appended == kept
            log.close()


def test_the_row_labels_are_all_shown() -> None:
    shown = {label for label, _, _ in CASES} | {"K2"}
    assert shown == {row.label[:2] for row in TABLE}, "whatever is kept ends with a K2"


def test_refusal_names_file_and_offset(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    flip(disk.path(2), HEADER_BYTES + FRAME + 35)
    with pytest.raises(WalCorrupt) as caught:
        Log.open(disk.directory)
    assert caught.value.file == disk.path(2)
    assert caught.value.offset == HEADER_BYTES + FRAME
    assert "frame 4" in caught.value.reason


def test_a_cut_tail_is_kept_aside_and_zeros_are_not(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    tail = disk.frame(7, 6)[:-4]
    put(disk.path(3), END, tail + bytes(100))
    Log.open(disk.directory).close()
    asides = [name for name in os.listdir(tmp_path) if ".torn-" in name]
    assert len(asides) == 1
    assert asides[0].startswith(f"{os.path.basename(disk.path(3))}.torn-{END}-")
    assert (tmp_path / asides[0]).read_bytes() == tail
    put(disk.path(3), END, bytes(100))
    Log.open(disk.directory).close()
    assert [name for name in os.listdir(tmp_path) if ".torn-" in name] == asides


def ones(disk: Disk, *numbers: int) -> list[tuple[int, bytes]]:
    return [(number, b"frame %02d" % number) for number in numbers]


def strike(*places: tuple[int, int]) -> Hurt:
    """Flip one bit in each of some frames: segment, offset in bytes behind the header page."""
    return each(*(lambda d, s=s, o=o: flip(d.path(s), HEADER_BYTES + o) for s, o in places))


SALVAGED: list[tuple[str, Hurt, tuple[int, ...], tuple[int, ...]]] = [
    # what happened, frames that stay, frames in whose place a gap stands
    ("a payload inside", strike((2, 35)), (1, 2, 4, 5, 6), (3,)),
    ("a header of a frame", strike((2, 3)), (1, 2, 4, 5, 6), (3,)),
    ("the last frame of a segment", strike((1, FRAME + 35)), (1, 3, 4, 5, 6), (2,)),
    ("the first frame of all", strike((1, 35)), (2, 3, 4, 5, 6), (1,)),
    ("in the last segment", strike((3, 35)), (1, 2, 3, 4, 6), (5,)),
    ("the last frame of all", strike((3, FRAME + 35)), (1, 2, 3, 4, 5), ()),
    ("a whole segment", strike((2, 35), (2, FRAME + 35)), (1, 2, 5, 6), (3, 4)),
    ("two places", strike((1, FRAME + 35), (3, 35)), (1, 3, 4, 6), (2, 5)),
    ("a segment header", lambda d: flip(d.path(2), 20), (1, 2, 3, 4, 5, 6), ()),
    ("the first segment header", lambda d: flip(d.path(1), 20), (1, 2, 3, 4, 5, 6), ()),
    ("the last segment header", lambda d: flip(d.path(3), 20), (1, 2, 3, 4, 5, 6), ()),
    ("all segment headers", each(*(lambda d, s=s: flip(d.path(s), 20) for s in (1, 2, 3))),
     (1, 2, 3, 4, 5, 6), ()),
    ("a header of another place", lambda d: put(d.path(2), 0, d.header(1)), (1, 2, 3, 4, 5, 6), ()),
    ("a file in the middle", lose(2), (1, 2, 5, 6), (3, 4)),
    ("the newest file", lose(3), (1, 2, 3, 4), ()),
    ("the oldest file", lose(1), (3, 4, 5, 6), ()),
    ("the end of a segment", lambda d: os.truncate(d.path(2), HEADER_BYTES + FRAME),
     (1, 2, 3, 5, 6), (4,)),
    ("the end of the log", lambda d: os.truncate(d.path(3), HEADER_BYTES + FRAME),
     (1, 2, 3, 4, 5), ()),
    ("the end of the log and its header", lambda d: os.truncate(d.path(3), 100), (1, 2, 3, 4), ()),
    ("a segment in the place of another", lambda d: put(d.path(2), 0, Path(d.path(1)).read_bytes()),
     (1, 2, 5, 6), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
@pytest.mark.parametrize(
    ("hurt", "stay", "gaps"), [case[1:] for case in SALVAGED], ids=[case[0] for case in SALVAGED]
)
def test_only_what_is_damaged_is_lost(
    tmp_path: Path, hurt: Hurt, stay: tuple[int, ...], gaps: tuple[int, ...], noted: bool
) -> None:
    disk = Disk(str(tmp_path))
    if not noted:
        note(disk)
    hurt(disk)
    before = tree(disk.directory)
    found = list(survey(OsFileSystem(), disk.directory, same_boot=True, frame_bytes_max=1 << 20))
    damaged = any(finding.outcome is RecoveryOutcome.REFUSE for finding in found)
    assert damaged or not noted
    log = Log.open(disk.directory, set_damage_aside=True, lost_payload=b"lost", begin=False)
    held = [(frame.number, frame.payload) for frame in log.read()]
    wanted = sorted(ones(disk, *stay) + [(number, b"lost") for number in gaps])
    assert held == wanted
    assert tree(disk.directory) == before, "nothing is changed before the log begins"
    losses = [str(loss) for loss in log.losses]
    log.begin()
    assert [(frame.number, frame.payload) for frame in log.read()] == wanted
    assert log.append(b"on", sync=True) == wanted[-1][0] + 1
    log.close()
    assert {n for loss in log.losses for n in range(loss.first_lost, loss.last_lost + 1)} >= set(
        gaps
    ), losses
    after = tree(disk.directory)
    for name, data in before.items():
        if name.endswith(".wal") and not after.get(name, b"").startswith(data):
            kept = [other for aside, other in after.items() if aside.startswith(f"{name}.damaged-")]
            torn = b"".join(other for aside, other in after.items() if ".torn-" in aside)
            assert data in kept or torn or not damaged, (
                f"{name} was changed and its bytes are nowhere"
            )
    again = Log.open(disk.directory)
    assert again.losses == []
    assert [(f.number, f.payload) for f in again.read()] == [*wanted, (wanted[-1][0] + 1, b"on")]
    again.close()


def test_damage_of_which_nothing_is_left(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    for id in (1, 2, 3):
        put(disk.path(id), 0, b"x" * END)
    log = Log.open(disk.directory, set_damage_aside=True)
    assert list(log.read()) == []
    assert {loss.path for loss in log.losses} == {disk.path(id) for id in (1, 2, 3)}
    assert all(os.path.exists(loss.aside) for loss in log.losses)
    assert log.append(b"on", sync=True) == 1
    log.close()
    Log.open(disk.directory).close()


def test_a_frame_inside_a_payload_is_never_taken_for_one(tmp_path: Path) -> None:
    """Somebody who can read segments can send frames that pass for frames of this log."""
    log = Log.open(str(tmp_path), random_bytes=lambda n: b"i" * n)
    forged = encode_frame(b"forged", 3, 1, salt_of(b"i" * 16, 1))
    log.append(b"first", sync=True)
    log.append(b"1234" + forged + b"....", sync=True)
    log.append(b"third", sync=True)
    log.close()
    path = segment_path(str(tmp_path), 1)
    flip(path, HEADER_BYTES + frame_bytes(5) + 33)
    log = Log.open(str(tmp_path), set_damage_aside=True, lost_payload=b"lost")
    assert [frame.payload for frame in log.read()] == [b"first", b"lost", b"third"]
    log.close()


@pytest.mark.parametrize("stop", range(40))
def test_setting_aside_may_be_interrupted(stop: int) -> None:
    def sim(fs: SimFileSystem, set_damage_aside: bool = False) -> Log:
        return Log.open(
            "d",
            fs=fs,
            segment_bytes_max=5000,
            random_bytes=Random(1).randbytes,
            set_damage_aside=set_damage_aside,
        )

    fs = SimFileSystem(Random(1))
    log = sim(fs)
    for number in range(1, 10):
        log.append(b"%d" % number * 200, sync=True)
        log.step()
    log.close()
    for id, offset in ((2, HEADER_BYTES + 50), (3, 20)):
        file = fs.open(segment_path("d", id))
        file.pwrite(b"!", offset)
        file.sync()
    disk = fs.kill_clone()
    disk.crash_after(stop)
    with suppress(SimCrash):
        sim(disk, set_damage_aside=True)
    for back in (disk.kill_clone(), disk.crash_clone(Random(stop))):
        log = sim(back, set_damage_aside=True)
        said = {frame.number: frame.payload[:1] for frame in log.read()}
        assert [n for n in range(1, 10) if said[n] != b"%d" % n] == [4]


def test_a_full_disk_keeps_a_torn_tail_from_being_cut() -> None:
    """Without its copy the tail is not given up; with space again the log opens."""
    fs = SimFileSystem(Random(1))
    log = Log.open("d", fs=fs, random_bytes=Random(1).randbytes)
    log.append(b"good", sync=True)
    log.step()
    path = log.segments()[0].path
    fs.open(path).pwrite(b"torn" * 100, log.bytes_total)
    disk = fs.kill_clone()
    disk.capacity_bytes = 0
    before = disk.contents()[path]
    with pytest.raises(WalFull):
        Log.open("d", fs=disk)
    assert disk.contents()[path] == before
    disk.capacity_bytes = None
    assert Log.open("d", fs=disk).appended == 1
    assert [data for name, data in disk.contents().items() if ".torn-" in name] == [b"torn" * 100]


def test_setting_aside_changes_nothing_on_a_good_log(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    before = tree(disk.directory)
    log = Log.open(disk.directory, set_damage_aside=True)
    assert log.losses == []
    log.close()
    segments = {name: data for name, data in before.items() if name.endswith(".wal")}
    after = tree(disk.directory)
    assert {name: after[name] for name in segments} == segments
    assert after.keys() == before.keys()


class Counting(OsFileSystem):
    """The disk, counting the bytes that are read of each file."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        """See FileSystem."""
        counts, file = self.read, super().open(path, writable=writable)

        class Counted(OsFile):
            def pread(self, length: int, offset: int) -> bytes:
                data = super().pread(length, offset)
                counts[path] += len(data)
                return data

        return Counted(file._fd, None)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
def test_each_segment_is_read_once(tmp_path: Path, is_damaged: bool) -> None:
    """Its frames are handed out while it is examined; a refusal comes as soon as it is known, and
    changes nothing."""
    disk = Disk(str(tmp_path))
    if is_damaged:
        put(disk.path(2), HEADER_BYTES + 40, b"damage")
    before = tree(disk.directory)
    fs = Counting()
    log = Log.open(disk.directory, fs=fs, begin=False)
    if is_damaged:
        held: list[Frame] = []
        with pytest.raises(WalCorrupt, match="damaged at"):
            held.extend(log.read())
        log.close()
        assert fs.read[disk.path(3)] == HEADER_BYTES, "nothing behind the damage is read"
        after = tree(disk.directory)
        assert after == before
        return
    held = [*log.read()]
    log.begin()
    assert log.appended == held[-1].number == 6
    log.close()
    segments = {path: size for path, size in fs.read.items() if path.endswith(".wal")}
    assert len(segments) == 3
    for path, size in segments.items():
        assert size == HEADER_BYTES + os.path.getsize(path), "the first page, then all of it"
