"""Files that are missing, cut short, older or damaged: a server that would come up without records
that were promised refuses to start, says what is missing, and changes nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from logqueue import events as ev
from logqueue.core.invariants import check
from logqueue.server.storage.journal import Journal
from tests.core.world import World
from wal import WalCorrupt
from wal.format import HEADER_BYTES, encode_frame, frame_bytes, salt_of
from wal.testing.simfs import Op, SimFileSystem

Hurt = Callable[["Disk"], object]


class Disk:
    """The directory of a server that was killed, and words for hurting it."""

    def __init__(self) -> None:
        world = World(SimFileSystem(Random(1)), segment_bytes=4096 + 1500)
        world.put(durability="fsync", leases_durable=True, lease_ms=60_000)
        for start in (False, True):
            if start:
                self.earlier = world.fs.kill_clone()
                world.restart()
            world.fill(12)
            world.take(4)
            world.step()
            world.tidy()
        self.acked = world.seqs()
        self.fs = world.fs.kill_clone()

    def names(self, log: str) -> list[str]:
        """Segment files of a log, oldest first."""
        return sorted(
            path for path in self.fs.contents() if path.startswith(f"data/{log}/0")
            and path.endswith(".wal")
        )  # fmt: skip

    def lose(self, *paths: str) -> None:
        """Files go."""
        for path in paths:
            self.fs.remove(path)

    def lose_log(self, log: str, *, directory: bool) -> None:
        """All of a log goes, perhaps with its directory."""
        self.lose(*(path for path in self.fs.contents() if path.startswith(f"data/{log}/")))
        if directory:
            self.fs._directories.discard(f"data/{log}")

    def put(self, path: str, offset: int, data: bytes) -> None:
        """Other bytes stand somewhere."""
        file = self.fs.open(path)
        file.pwrite(data, offset)
        file.sync()

    def cut(self, path: str, size: int) -> None:
        """A file is cut short."""
        file = self.fs.open(path)
        file.truncate(size)
        file.sync()

    def older(self) -> None:
        """The jobs log is as it was at an earlier time."""
        were = self.earlier.contents()
        self.lose(*(path for path in self.names("jobs") if path not in were))
        for path in (*self.names("jobs"), "data/jobs/HEAD"):
            self.cut(path, 0)
            self.put(path, 0, were[path])

    def ends(self, path: str) -> list[int]:
        """Where each frame of a segment ends."""
        data, at, ends = self.fs.contents()[path], HEADER_BYTES, [HEADER_BYTES]
        while data[at : at + 4] == b"\x59\xc1\xa3\xf7":
            at += frame_bytes(int.from_bytes(data[at + 4 : at + 8], "little"))
            ends.append(at)
        return ends

    def torn(self, log: str) -> None:
        """Half a frame stands at the end of a log, as a kill leaves it."""
        path = self.names(log)[-1]
        self.put(path, self.ends(path)[-1], b"half a frame")

    def strange(self) -> None:
        """A whole frame is not a transaction of this version."""
        path = self.names("jobs")[-1]
        identity = self.fs.contents()[path][32:48]
        journal = Journal.open("data", segment_bytes_max=1 << 20, fs=self.fs)
        journal.jobs.examine()
        number = journal.jobs.appended + 1
        journal.close()
        salt = salt_of(identity, int(path[-24:-4]))
        self.put(path, self.ends(path)[-1], encode_frame(b"strange", number, number - 1, salt))


LAST = -1
KINDS: dict[str, tuple[str, Hurt]] = {
    # what the message must say, what happened
    "newest jobs segment": ("is missing", lambda d: d.lose(d.names("jobs")[LAST])),
    "newest leases segment": ("is missing", lambda d: d.lose(d.names("leases")[LAST])),
    "two newest": ("missing", lambda d: d.lose(*d.names("jobs")[-2:])),
    "one in the middle": ("is missing", lambda d: d.lose(d.names("jobs")[1])),
    "oldest jobs segment": ("is missing", lambda d: d.lose(d.names("jobs")[0])),
    "oldest leases segment": ("is missing", lambda d: d.lose(d.names("leases")[0])),
    "all segments": ("is missing", lambda d: d.lose(*d.names("jobs"))),
    "cut at a frame": (
        "ends too early",
        lambda d: d.cut(d.names("jobs")[LAST], d.ends(d.names("jobs")[LAST])[-2]),
    ),
    "cut behind the header": ("too early", lambda d: d.cut(d.names("jobs")[LAST], HEADER_BYTES)),
    "cut to nothing": ("too early", lambda d: d.cut(d.names("jobs")[LAST], 0)),
    "zeros at a frame": (
        "ends too early",
        lambda d: d.put(d.names("jobs")[LAST], d.ends(d.names("jobs")[LAST])[-2], bytes(2000)),
    ),
    "leases cut at a frame": (
        "ends too early",
        lambda d: d.cut(d.names("leases")[LAST], d.ends(d.names("leases")[LAST])[-2]),
    ),
    "last frame spoilt": (
        "promised",
        lambda d: d.put(d.names("jobs")[LAST], d.ends(d.names("jobs")[LAST])[-2] + 40, b"\0!"),
    ),
    "jobs directory": ("jobs log is missing", lambda d: d.lose_log("jobs", directory=True)),
    "leases directory": ("leases log is missing", lambda d: d.lose_log("leases", directory=True)),
    "jobs emptied": ("jobs log is missing", lambda d: d.lose_log("jobs", directory=False)),
    "leases emptied": ("leases log is missing", lambda d: d.lose_log("leases", directory=False)),
    "note of the jobs log": ("note of what must be", lambda d: d.lose("data/jobs/HEAD")),
    "spoilt note": ("cannot be read", lambda d: d.put("data/jobs/HEAD", 0, bytes(8192))),
    "spoilt names": ("should name both logs", lambda d: d.put("data/LOGS", 0, b"!")),
    "names no text": ("should name both logs", lambda d: d.put("data/LOGS", 45, b"\xb0")),
    "oldest and all notes": (
        "of the jobs log are missing",
        lambda d: d.lose("data/jobs/HEAD", "data/leases/HEAD", "data/LOGS", d.names("jobs")[0]),
    ),
    "older jobs": (
        "older than the rest",
        lambda d: d.older(),
    ),
    "damage in the leases": (
        "damaged",
        lambda d: d.put(d.names("leases")[0], HEADER_BYTES + 36, b"\0!"),
    ),
    "no transaction": ("not a transaction", lambda d: d.strange()),
}


@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_start_without_promised_records_is_refused(kind: str, torn: bool) -> None:
    says, hurt = KINDS[kind]
    disk = Disk()
    if torn and kind != "no transaction":
        # What another start would have repaired stays as it is, too.
        for log in ("jobs", "leases"):
            if kind not in ("cut at a frame", "zeros at a frame"):
                disk.torn(log)
    hurt(disk)
    before = disk.fs.contents()
    locks = {path for path in before if path.endswith("LOCK")}
    with pytest.raises(WalCorrupt) as refused:
        World(disk.fs)
    assert says in str(refused.value)
    assert "nothing was changed" in str(refused.value)
    after = disk.fs.contents()
    assert after.keys() == before.keys(), "files came or went"
    assert after == before
    assert locks <= after.keys()
    # A directory is free again after the refusal.
    with pytest.raises(WalCorrupt):
        World(disk.fs)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"no transaction"}))
def test_the_operator_goes_on_with_what_there_is(kind: str) -> None:
    _, hurt = KINDS[kind]
    disk = Disk()
    hurt(disk)
    world = World(disk.fs, set_damage_aside=True)
    check(world.state)
    world.put(durability="fsync", leases_durable=True, lease_ms=60_000)
    world.fill(3)
    found = world.seqs()
    if "jobs" not in kind and "all" not in kind and "leases" in kind:
        assert set(disk.acked) <= set(found)
    world.set_damage_aside = False
    world.step()
    world.kill()
    check(world.state)
    assert world.seqs() == found, "the next start finds the same"


def test_a_directory_of_an_earlier_version_opens_and_is_noted() -> None:
    disk = Disk()
    disk.lose("data/jobs/HEAD", "data/leases/HEAD", "data/LOGS")
    world = World(disk.fs)
    assert set(world.seqs()) == set(disk.acked)
    assert {"data/jobs/HEAD", "data/leases/HEAD", "data/LOGS"} <= disk.fs.contents().keys()


@pytest.mark.parametrize(
    ("log", "other"), [("jobs", "leases"), ("leases", "jobs")], ids=["jobs", "leases"]
)
def test_even_an_earlier_version_had_both_logs(log: str, other: str) -> None:
    disk = Disk()
    disk.lose("data/jobs/HEAD", "data/leases/HEAD", "data/LOGS")
    disk.lose_log(log, directory=True)
    before = disk.fs.contents()
    with pytest.raises(WalCorrupt, match=f"the {log} log is missing"):
        World(disk.fs)
    assert disk.fs.contents() == before


def test_a_full_disk_has_no_room_for_notes_and_the_log_opens() -> None:
    disk = Disk()
    disk.lose("data/jobs/HEAD", "data/leases/HEAD", "data/LOGS")
    disk.fs.capacity_bytes = 0
    world = World(disk.fs)
    assert set(world.seqs()) == set(disk.acked)
    assert not any("HEAD" in path or "LOGS" in path for path in disk.fs.contents())


@pytest.mark.parametrize("stop", range(70))
def test_a_crash_while_a_directory_is_made_leaves_one_that_opens(stop: int) -> None:
    for cut in (False, True):
        fs = SimFileSystem(Random(stop))
        fs.crash_after(stop)
        acked: list[int] = []
        try:
            world = World(fs)
            world.put(durability="fsync")
            world.fill(2)
            acked = world.seqs()
            world.restart()
        except BaseException as error:
            assert type(error).__name__ == "SimCrash"
        back = World(fs.crash_clone(Random(stop)) if cut else fs.kill_clone())
        check(back.state)
        assert not acked or back.seqs() == acked


@pytest.mark.parametrize("seed", range(40))
def test_lost_frames_leave_a_state_without_contradictions(seed: int) -> None:
    """Any few frames of either log may be damaged: what is behind them still counts."""
    from tests.sim.ledger import Ledger
    from tests.sim.workload import Workload

    rng = Random(seed)
    world = World(SimFileSystem(rng), segment_bytes=4096 + 2000)
    Workload(seed % 5, Ledger()).run(world, 25)
    world.step()
    disk = Disk()
    disk.fs = world.fs.kill_clone()
    hit = 0
    for path in [*disk.names("jobs"), *disk.names("leases")]:
        ends = disk.ends(path)
        for at in ends[:-1]:
            if rng.random() < 0.2:
                disk.put(path, at + 33, b"\xfe")
                hit += 1
        if rng.random() < 0.1:
            disk.put(path, 8, b"!")
    back = World(disk.fs, clock=world.clock, set_damage_aside=True)
    check(back.state)
    journal = back.engine.journal
    lost = sum(loss.frames for loss in (*journal.jobs.losses, *journal.leases.losses))
    assert lost <= hit, [str(loss) for loss in (*journal.jobs.losses, *journal.leases.losses)]
    said = [ev.decode(frame.payload) for frame in journal.jobs.read()]
    assert any(one.events for one in said) or hit
    back.put("after", durability="fsync")
    back.fill(2, "after")
    back.step()
    back.set_damage_aside = False
    back.kill()
    check(back.state)
    back.restart()
    check(back.state)


@pytest.mark.parametrize("log", ["jobs", "leases"])
@pytest.mark.parametrize("failing", range(1, 7))
def test_what_a_failed_sync_left_unwritten_is_written_again(log: str, failing: int) -> None:
    """After a failed sync pages read well and count as clean, though the disk lacks them. A start
    on the same boot must not take them for durable."""
    world = World(SimFileSystem(Random(failing)), segment_bytes=4096 + 900)
    world.put(durability="fsync", leases_durable=True, lease_ms=60_000)
    world.put("d", durability="disk")
    world.fill(3)
    left = failing

    def fail(op: Op) -> OSError | None:
        nonlocal left
        if op.kind == "sync" and op.path.startswith(f"data/{log}/0"):
            left -= 1
            return OSError(errno.EIO, "input/output error") if left == 0 else None
        return None

    world.fs.fail_when(fail)
    try:
        for _ in range(6):
            world.write("d", "unsynced")
            world.fill(2)
            world.take(1)
            if log == "leases":
                world.engine.journal.leases.sync()
                world.step()
    except Exception as error:
        assert log == "jobs", error
    assert left <= 0
    back = World(world.fs.kill_clone(), clock=world.clock)
    back.fill(2)
    back.engine.journal.jobs.sync()
    back.engine.journal.leases.sync()
    back.step()
    there = {name: back.seqs(name) for name in ("q", "d")}
    counts = back.counters()
    for cut in range(3):
        after = World(back.fs.crash_clone(Random(f"{failing}/{cut}")), clock=back.clock)
        assert {name: after.seqs(name) for name in ("q", "d")} == there
        assert after.counters() == counts
