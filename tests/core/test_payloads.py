"""Record data that is read from segment files: the same state, errors for single records only."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from logqueue.api.record_texts import RecordTexts, shown
from logqueue.core import commands as cmd
from logqueue.core.batch import Batch
from logqueue.core.invariants import check
from logqueue.core.reading import ReadPage, read
from logqueue.core.routers import RouterState
from logqueue.errors import StorageUnreadable
from logqueue.events import split_block
from logqueue.events.block import BlockView, cut, pack
from logqueue.events.split_block import SplitBlock, joined, split
from logqueue.server.storage import compaction, payload_store
from logqueue.server.storage.payload_store import PayloadStore
from tests.core.world import World, fall_back, job, wish
from tests.effort import scaled
from tests.portrait import portrait
from tests.sim.ledger import Ledger
from tests.sim.workload import Workload
from wal import OsFileSystem, segment_path
from wal.testing.simfs import Op, SimFile, SimFileSystem

SHOW_ALL = shown(tags=True, meta=True)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data leaves memory, and hardly any page stays."""
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", 20)
    monkeypatch.setattr(payload_store, "PAGE_BYTES", 64)
    monkeypatch.setattr(payload_store, "CACHE_BYTES_MAX", 500)
    monkeypatch.setattr(payload_store, "OPEN_FILES_MAX", 2)


def text(number: int) -> str:
    """Data of one record, unlike that of all others."""
    return f"{number:06}" * 12


def filled(records: int = 60, *, each: int = 3, **config: Any) -> World:
    """A queue over several segments, most of them sealed; nothing was moved yet."""
    world = World()
    world.put(durability="fsync", **config)
    for first in range(1, records + 1, each):
        world.write("q", *(job(text(n)) for n in range(first, first + each)))
    world.step()
    return world


def offload(world: World) -> None:
    for _ in world.engine.journal.offload():
        world.step()


def page(world: World, from_seq: int = 0, show: int = SHOW_ALL) -> ReadPage:
    topic = world.topic("q")
    found = read(topic, from_seq, world.now, records_max=1000, bytes_max=1 << 20)
    return RecordTexts().of_page(topic, found, show)[0]


def seqs_of(found: ReadPage) -> list[int]:
    return [seq for batch, start, end in found.runs for seq in batch.seqs_at(start, end)]


def in_memory(batch: Batch) -> int:
    """Bytes of data that a batch has in memory."""
    if isinstance(batch.block, bytes):
        return len(batch.block)
    data = batch.block.data.in_memory
    return 0 if data is None else len(data)


def damage(world: World, number: int) -> None:
    """Flip one bit of a record's data on the disk."""
    wanted = text(number).encode()
    for path, content in world.fs.contents().items():
        at = content.find(wanted)
        if at >= 0:
            world.fs.open(path, writable=True).pwrite(bytes([content[at] ^ 4]), at)
            return
    raise AssertionError("no file has this record")


def test_only_the_growing_segment_has_data_in_memory() -> None:
    world = filled()
    payloads = world.engine.journal.payloads
    offload(world)
    active = world.engine.journal.jobs.segment
    assert payloads.waiting == [active] and active > 3
    held = {batch.segment: in_memory(batch) for batch in world.topic("q").batches}
    assert {segment for segment, size in held.items() if size} == {active}
    assert payloads.waiting_bytes == sum(
        in_memory(batch) for batch in world.topic("q").batches if batch.segment == active
    )
    assert [texts[0] for _, _, texts in world.records()] == [job(text(n))[0] for n in range(1, 61)]
    assert payloads.cached_bytes <= payload_store.CACHE_BYTES_MAX
    assert payloads.failures == 0


def test_a_replay_holds_the_data_of_one_segment() -> None:
    world = filled()
    most = 0
    apply_step = payload_store.PayloadStore.in_frame

    def watched(self: PayloadStore, segment: int, offset: int, parts: list[bytes]) -> None:
        nonlocal most
        most = max(most, len(self.waiting))
        apply_step(self, segment, offset, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_store.PayloadStore, "in_frame", watched)
        world.kill()
    assert most <= 2, "a segment leaves memory before the one behind the next is read"
    assert [texts[0] for _, _, texts in world.records()] == [job(text(n))[0] for n in range(1, 61)]


@pytest.mark.parametrize("seed", range(scaled(3, 40)))
def test_replies_do_not_depend_on_where_data_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same day with and without: the same state, before and after the process dies."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    pictures = []
    for data_min in (4, 1 << 30):
        monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", data_min)
        world, workload = World(SimFileSystem(Random(seed))), Workload(seed, Ledger())
        workload.begin(world)
        workload.run(world, 40)
        live = portrait(world.state)
        world.step()
        # Between the seal and the move, and once more after it.
        world.kill()
        killed = portrait(world.state)
        offload(world)
        check(world.state)
        pictures.append((live, killed, portrait(world.state)))
    assert pictures[0] == pictures[1]


def test_cuts_and_copies_share_data() -> None:
    block = pack(
        [
            [job(text(n))[0] for n in range(8)],
            [b'"t%d"' % n for n in range(8)],
            None,
            [b'{"m":%d}' % n for n in range(8)],
        ],
        numbers={2: range(8)},
    )
    whole, parted = BlockView(block), split(block)
    view = BlockView(parted)
    assert joined(parted) is block and len(parted) == len(block)
    for start in range(8):
        for end in range(start + 1, 9):
            expected = cut(whole, start, end)
            part = cut(view, start, end)
            assert joined(part) == expected and len(part) == len(expected)
            assert [*BlockView(part).rows(range(end - start))] == [*whole.rows(range(start, end))]
            assert isinstance(part, SplitBlock) and part.data is parted.data
    for index in range(8):
        assert view.texts(index) == whole.texts(index)
        assert view.size(index) == whole.size(index)


def test_routers_stages_and_keys_read_from_files() -> None:
    world = World()
    world.put("s", type="log", durability="fsync")
    world.put(durability="fsync")
    world.put_router("all", "s", "copy")
    world.put_router("some", "s", "picked", filter="a")
    for n in range(12):
        world.write("s", job(text(n), tag="ab"[n % 2]), job(text(100 + n), tag="a"))
        world.write("q", wish(text(n), key=f"k{n % 5}", delay_ms=n))
    world.step()
    before = portrait(world.state)
    offload(world)
    after = portrait(world.state)
    world.kill()
    offload(world)
    assert portrait(world.state) == after
    assert after["s"]["records"] == before["s"]["records"]
    assert [t[0] for _, _, t in world.records("copy")] == [t[0] for _, _, t in world.records("s")]


# -- damage found late -----------------------------------------------------------------------------


def flipped(world: World, number: int) -> None:
    damage(world, number)


def refused_by_the_disk(world: World, number: int) -> None:
    wanted = text(number).encode()
    place = next(
        (path, content.find(wanted))
        for path, content in world.fs.contents().items()
        if wanted in content
    )

    def fail(op: Op) -> OSError | None:
        is_there = op.offset <= place[1] < op.offset + op.length
        if op.kind == "pread" and op.path == place[0] and is_there:
            return OSError(errno.EIO, "input/output error")
        return None

    world.fs.fail_when(fail)


def cut_off(world: World, number: int) -> None:
    wanted = text(number).encode()
    for path, content in world.fs.contents().items():
        if wanted in content:
            world.fs.open(path, writable=True).truncate(content.find(wanted))


LATE = [flipped, refused_by_the_disk]


@pytest.mark.parametrize("spoil", LATE)
def test_readers_get_all_but_the_damaged_record(spoil: Callable[[World, int], None]) -> None:
    world = filled(each=1)
    offload(world)
    spoil(world, 20)
    found = page(world)
    assert seqs_of(found) == [*range(1, 20)] and found.next_from_seq == 19
    RecordTexts().join(1, found.runs, SHOW_ALL)
    with pytest.raises(StorageUnreadable, match=r"record 20 of topic 'q'.*`from_seq` 20") as told:
        page(world, 19)
    assert told.value.status == 500 and told.value.detail is not None
    assert told.value.detail["reason"] == "storage_unreadable"
    assert (told.value.detail["topic"], told.value.detail["seq"]) == ("q", 20)
    assert seqs_of(page(world, 20)) == [*range(21, 61)]
    # Whoever does not want data need not be refused.
    assert seqs_of(page(world, show=shown(tags=True, meta=True, data=False))) == [*range(1, 61)]


@pytest.mark.parametrize("spoil", LATE)
def test_claims_hold_the_damaged_job(spoil: Callable[[World, int], None]) -> None:
    world = filled(each=1)
    offload(world)
    spoil(world, 2)
    assert world.take(3) == [1, 3], "the others are not kept waiting"
    assert world.take(2) == [4, 5]
    queue = world.queue().queue
    assert [*queue.held] == [2] and queue.jobs[2].deliveries == 0
    assert "cannot be read" in (queue.jobs[2].error or "")
    check(world.state)
    world.fs.fail_when(lambda op: None)
    if spoil is refused_by_the_disk:
        # Nothing is lost: the disk gives it again, and an operator releases the job.
        world.run(cmd.Release("q", (2,)))
        assert world.claim(1)[0].data == job(text(2))[0]
    else:
        assert world.delete(before=3) == 2, "a record need not be readable to be deleted"


def test_neighbours_in_the_damaged_batch_are_read() -> None:
    world = filled(each=20)
    offload(world)
    damage(world, 10)
    # Damage spoils a page of 64 bytes, thus parts of two records.
    lost = [seq for seq in range(1, 21) if not world.topic("q").readable([seq])]
    assert 10 in lost and len(lost) <= 2
    assert seqs_of(page(world)) == [*range(1, lost[0])]
    assert seqs_of(page(world, lost[-1]))[0] == lost[-1] + 1
    text_of_rest = RecordTexts().join(1, page(world, lost[-1]).runs, SHOW_ALL)
    assert text(60).encode() in text_of_rest
    assert world.take(20) == [seq for seq in range(1, 21) if seq not in lost]


def test_a_file_that_ends_early_is_an_error_of_its_records() -> None:
    world = filled(each=1)
    offload(world)
    cut_off(world, 7)
    assert 7 not in world.topic("q").readable([6, 7])
    assert world.topic("q").readable([60])


def test_a_damaged_exhausted_job_does_not_stop_the_queue() -> None:
    world = filled(each=1, max_deliveries=1, dead_letter="dead", lease_ms=1000)
    offload(world)
    assert world.take(3) == [1, 2, 3]
    damage(world, 2)
    world.wait(2000)
    while not (taken := world.take(3)):
        world.wait(1000)
    assert taken == [4, 5, 6]
    assert [*world.queue().queue.held] == [2]


def test_expiry_into_an_archive_waits_for_a_record_that_cannot_be_read() -> None:
    world = filled(each=1, ttl_ms=5000, archive="ended")
    offload(world)
    damage(world, 1)
    world.wait(6000)
    assert world.take(5) == [], "past its time, so it is not handed out"
    assert seqs_of(page(world)) == []


# -- segments that go ------------------------------------------------------------------------------


def test_a_slow_reader_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world = filled()
    offload(world)
    held = page(world)
    expected = RecordTexts().join(1, held.runs, SHOW_ALL)
    world.delete(before=40)
    oldest = world.engine.journal.jobs.segments()[0].id
    for _ in range(4):
        world.tidy()
    assert world.engine.journal.jobs.segments()[0].id > oldest
    assert RecordTexts().join(1, held.runs, SHOW_ALL) == expected
    assert seqs_of(page(world)) == [*range(40, 61)]


def test_files_close_when_no_block_refers_to_them(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    directory = str(tmp_path / "jobs")
    store = PayloadStore(OsFileSystem(), directory)
    blocks = {}
    for segment in range(1, 7):
        block = pack([[job(text(segment))[0]], None, None, None])
        Path(segment_path(directory, segment)).write_bytes(b"." * 10 + block)
        store.in_frame(segment, 10, (block,))
        blocks[segment] = store.keep(block, segment)
        for _ in store.offload(segment):
            pass

    def opened() -> list[str]:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return sorted(os.readlink(link) for link in links if os.path.islink(link))

    def of_segments() -> int:
        return sum(path.startswith(directory) for path in opened())

    assert of_segments() <= payload_store.OPEN_FILES_MAX
    store.pin_before(6)
    for path in Path(directory).iterdir():
        if not path.name.endswith("6.wal"):
            path.unlink()
    for segment, kept in blocks.items():
        assert BlockView(kept).text(0, 0) == job(text(segment))[0]
    del blocks, kept
    gc.collect()
    assert of_segments() <= 1
    store.close()
    assert of_segments() == 0


def test_damage_set_aside_reads_the_mended_files(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(each=1)
    damage(world, 20)
    world.fs = world.fs.kill_clone()
    world.set_damage_aside = True
    world.engine = world._open()
    assert world.engine.journal.jobs.losses
    offload(world)
    found = {seq: texts[0] for seq, _, texts in world.records()}
    assert found == {n: job(text(n))[0] for n in range(1, 61) if n != 20}


def test_a_failed_log_goes_on_reading() -> None:
    world = filled()
    offload(world)
    before = portrait(world.state)
    world.fs.fail_when(lambda op: OSError(errno.EIO, "no") if op.kind == "sync" else None)
    with pytest.raises(Exception, match="read-only"):
        world.write("q", job(text(99)))
    world.fs.fail_when(lambda op: None)
    fall_back(world.engine)
    assert portrait(world.state) == before


def test_only_who_reads_on_has_the_system_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(SimFile, "will_read", lambda self, *range: asked.append(range))
    monkeypatch.setattr(payload_store, "AHEAD_BYTES", 1000)
    fs = SimFileSystem(Random(0))
    fs.create("a")
    file = payload_store.PayloadFile(fs, "a", 1)
    for offset in (50_000, 3000, 9000):
        file.note_read(offset, offset + 100)
    assert asked == [], "reads here and there"
    for offset in range(9100, 12_000, 100):
        file.note_read(offset, offset + 100)
    assert asked[0][0] == 9200 and len(asked) == 4
    ends = [offset + length for offset, length in asked]
    assert [offset for offset, _ in asked[1:]] == ends[:-1], "nothing is asked for twice"


def lagging_router(world: World, dest: str) -> RouterState:
    """A router that has all of the queue still to copy."""
    world.put_router("r", "q", dest, create_dest=False)
    router: RouterState = world.state.routers["r"]
    router.cursor = 0
    world.engine._note_routers(world.queue())
    return router


def test_a_router_waits_at_a_record_that_cannot_be_read() -> None:
    world = filled(each=1)
    world.put("all", type="log", durability="fsync")
    offload(world)
    refused_by_the_disk(world, 5)
    router = lagging_router(world, "all")
    world.forward()
    assert router.cursor < 5 and world.seqs("all") == [*range(1, router.cursor + 1)]
    world.fs.fail_when(lambda op: None)
    world.engine.retry_stalled()
    world.forward()
    assert [t[0] for _, _, t in world.records("all")] == [job(text(n))[0] for n in range(1, 61)]
    check(world.state)


def test_applying_a_copy_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(each=1)
    world.put("some", type="log", durability="fsync")
    offload(world)
    lagging_router(world, "some")
    payloads = world.engine.journal.payloads
    decided: list[int] = []
    append = type(world.engine.journal).append

    def counted(self: Any, *args: Any) -> Any:
        decided.append(payloads.reads)
        return append(self, *args)

    monkeypatch.setattr(type(world.engine.journal), "append", counted)
    world.forward()
    assert payloads.reads and decided[-1] == payloads.reads
