"""An archive without Spark: files, manifests, ends, locks, compaction, Delta."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.archive import manifests
from logqueue.pipeline.archive.committing import FileWritten, commit
from logqueue.pipeline.archive.contents import EVERY, archive_files, contents, holes, live_entries
from logqueue.pipeline.archive.loop import archive_id
from logqueue.pipeline.archive.manifests import ArchivedTopic, Manifest, Table, Watermark
from logqueue.pipeline.engines.spark.archive import compaction
from logqueue.pipeline.engines.spark.archive.compaction import KEPT_S, run_compact
from logqueue.pipeline.engines.spark.archive.delta import sync
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.rows.archive_files import write_batches
from logqueue.pipeline.storage import opening
from logqueue.pipeline.storage.opening import open_tree
from tests.effort import swept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "ab12-3"
DAY_MS = 86_400_000
TS = pa.timestamp("us", "UTC")


def rows(
    seqs: Iterable[int], topic: str = "orders", log_id: str = LOG, day: int = 0, place: str = "seq"
) -> pa.RecordBatch:
    """Rows with these places, a millisecond apart, on this day since the epoch."""
    places = [*seqs]
    of_events = {
        "job_seq": pa.array([1] * len(places), pa.int64()),
        "event": pa.array(["claimed"] * len(places)),
    }
    return pa.record_batch(
        {
            **({} if place == "seq" else of_events),
            "topic": pa.array([topic] * len(places)),
            place: pa.array(places, pa.int64()),
            "ts": pa.array([(day * DAY_MS + n) * 1000 for n in places], TS),
            "data": pa.array([f'{{"n":{n}}}' for n in places]),
            "log_id": pa.array([log_id] * len(places)),
        }
    )


class Archive:
    """An archive in a new directory."""

    def __init__(self, root: Path, table: Table = "records") -> None:
        self.root = root
        self.tree = open_tree(str(root))
        self.table: Table = table
        manifests.begin(self.tree)

    def write(self, *batches: pa.RecordBatch) -> list[FileWritten]:
        """What a task does."""
        return [*write_batches(self.tree, self.table, batches)]

    def epoch(self, number: int, *batches: pa.RecordBatch, archive: str = "") -> manifests.Manifest:
        """A whole micro-batch, in one task."""
        return self.settle(number, self.write(*batches), archive)

    def settle(
        self, number: int, written: list[FileWritten], archive: str = "", **more: Any
    ) -> manifests.Manifest:
        """Make what tasks have written count."""
        name = archive or f"{self.table}-0001"
        held = contents(self.tree, self.table)
        return commit(
            self.tree,
            held,
            written,
            lambda files: Manifest(
                table=self.table, archive=name, epoch=number, files=[*files], covered=[], **more
            ),
        )

    def seqs(self) -> list[int]:
        """What a reader that follows the manifests gets."""
        files = archive_files(str(self.root), self.table)
        tables = [pq.read_table(file, partitioning=None) for file in files]
        place = manifests.PLACE_COLUMNS[self.table]
        return [n for table in tables for n in table.column(place).to_pylist()]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


def test_a_file_is_named_by_its_range_and_is_what_the_manifest_says(archive: Archive) -> None:
    manifest = archive.epoch(0, rows([3, 1]), rows([2]), rows([7], topic="a:b", log_id="ab12-4"))
    first, second = manifest.files
    assert first.path == (
        "records/topic=a%3Ab/date=1970-01-01/"
        "00000000000000000007-00000000000000000007-ab12-4.parquet"
    )
    assert (second.topic, second.first, second.last, second.rows) == ("orders", 1, 3, 3)
    assert (second.min_ts, second.max_ts) == (1, 3)
    table = pq.read_table(archive.root / second.path, partitioning=None)
    assert table.column("seq").to_pylist() == [1, 2, 3]
    assert (archive.root / second.path).stat().st_size == second.bytes
    again = archive.write(rows([1]), rows([2, 3]))
    assert again[0].entry == second, "the same rows make the same bytes"
    assert manifests.load(archive.tree, "records-0001", 0) == manifest


def test_a_long_name_fits_into_a_path(archive: Archive) -> None:
    names = ["x" * 255, "x" * 254 + "y"]
    files = archive.epoch(0, *[rows([1], name, f"l-{name[-1]}") for name in names]).files
    assert len({file.path.split("/")[1] for file in files}) == 2
    assert archive.seqs() == [1, 1]


def test_an_orphan_never_counts_and_another_content_gets_another_name(archive: Archive) -> None:
    (left_over,) = archive.write(rows([1, 2]))
    archive.epoch(0, rows([1]))
    assert archive.seqs() == [1]
    other = rows([1, 2]).set_column(3, "data", pa.array(["0", "0"]))
    (written,) = archive.write(other)
    assert written.entry.path != left_over.entry.path
    assert (archive.root / left_over.entry.path).exists()


def test_an_epoch_of_another_process_is_not_written_over(archive: Archive) -> None:
    first = archive.epoch(0, rows([1, 2]))
    with pytest.raises(PipelineError, match="was archived by another process just now"):
        archive.epoch(0, rows([3]))
    assert manifests.load(archive.tree, "records-0001", 0) == first
    assert archive.seqs() == [1, 2]


def test_what_does_not_follow_is_refused(archive: Archive) -> None:
    archive.epoch(0, rows([1, 2]))
    with pytest.raises(PipelineError, match="archived up to 2, and these rows begin at 2"):
        archive.epoch(1, rows([2, 3]))
    with pytest.raises(PipelineError, match="gave seq 4 of topic orders twice"):
        archive.epoch(1, rows([4, 4]))
    with pytest.raises(PipelineError, match="gave seq 4 of topic orders twice"):
        twice = archive.write(rows([3, 4])) + archive.write(rows([4, 5]))
        archive.settle(1, twice)
    assert archive.seqs() == [1, 2]


def test_holes_are_declared(archive: Archive) -> None:
    """Before the first, between epochs, between the files of one, within a file."""
    archive.epoch(0, rows([5, 6]))
    archive.epoch(1, rows([1], topic="other", log_id="ab12-4"))
    parts = archive.write(rows([10, 12])) + archive.write(rows([20]))
    archive.settle(2, parts)
    archive.epoch(3, rows([21]))
    declared = [(hole.first, hole.last) for hole in holes(archive.tree, "records")]
    assert declared == [(1, 4), (7, 9), (11, 11), (13, 19)]


def test_a_checkpoint_spares_most_manifests(archive: Archive) -> None:
    """It says what they say; one that is damaged or does not fit is passed over."""

    def read() -> tuple[Any, int]:
        found = contents(archive.tree, "records")
        return (found.files, found.holes, found.progress, found.through), found.manifests_read

    mark = Watermark(log="ab12", order=7, ts=3, topics=[(3, 4)])
    topics = [ArchivedTopic(topic="orders", log_id=LOG, is_queue=True, complete_from=4)]
    held = contents(archive.tree, "records")
    for number in range(2 * EVERY + 5):
        written = archive.write(rows([2 * number + 1]))
        more: dict[str, Any] = {"watermark": mark, "topics": topics} if number == 9 else {}

        def manifest(files: Any, number: int = number, more: Any = more) -> Manifest:
            return Manifest(
                table="records",
                archive="records-0001",
                epoch=number,
                files=files,
                covered=[],
                **more,
            )

        commit(archive.tree, held, written, manifest)
    said, reads = read()
    assert reads == 5 and [*said[0].values()][-1].first == 4 * EVERY + 9
    assert said[2].watermarks == {"ab12-3": (7, 3), "ab12-4": (7, 3)}
    folder = archive.root / "_manifest" / "records-checkpoints"
    first, second = sorted(folder.iterdir())
    second.write_bytes(second.read_bytes()[:-2])
    assert read() == (said, EVERY + 5)
    first.unlink()
    assert read() == (said, 2 * EVERY + 5)
    # Manifests were restored from an older backup.
    for number in range(EVERY, 2 * EVERY + 5):
        (archive.root / manifests.manifest_name("records-0001", number)).unlink()
    second.unlink()
    assert read()[1] == EVERY
    assert sorted(said[0])[:EVERY] == sorted(read()[0][0])


def test_a_checkpoint_and_a_compaction(archive: Archive) -> None:
    """Merged files are out of the checkpoint, whichever came first."""
    for number in range(EVERY - 1):
        archive.epoch(number, rows([number + 1], day=number // 50))
    run_compact(str(archive.root))
    archive.epoch(EVERY - 1, rows([EVERY], day=2))
    assert contents(archive.tree, "records").manifests_read == 0
    assert sorted(archive.seqs()) == [*range(1, EVERY + 1)]
    run_compact(str(archive.root))
    assert contents(archive.tree, "records").manifests_read == 1
    assert sorted(archive.seqs()) == [*range(1, EVERY + 1)]
    assert len(live_entries(archive.tree, "records")) == 3


def test_an_archive_of_a_spark_stream_goes_on_under_the_next_number(archive: Archive) -> None:
    assert archive_id(archive.tree, "records") == "records-0001"
    archive.epoch(0, rows([1]))
    assert archive_id(archive.tree, "records") == "records-0001"
    for number in (1, 2):
        offsets = archive.root / "_checkpoint" / f"records-{number:04d}" / "offsets"
        offsets.mkdir(parents=True)
        (offsets / "0").touch()
    assert archive_id(archive.tree, "records") == "records-0003"


def test_lease_events_share_orders(tmp_path: Path) -> None:
    """Files of both logs interleave; ends and the restart are orders of the whole log."""
    archive = Archive(tmp_path / "archive", "lease_events")
    parts = archive.write(rows([1, 1, 5], place="lseq")) + archive.write(rows([3, 9], place="lseq"))
    archive.settle(0, parts)
    assert sorted(archive.seqs()) == [1, 1, 3, 5, 9]
    assert holes(archive.tree, "lease_events") == []
    with pytest.raises(PipelineError, match="archived up to 9"):
        archive.epoch(1, rows([8], place="lseq"))


def test_one_process_at_a_time(archive: Archive) -> None:
    """The other is named; a lock file whose holder is gone blocks no run."""
    hold = (
        "import sys; from logqueue.pipeline.storage.opening import open_tree\n"
        "with open_tree(sys.argv[1]).lock('archive'): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(archive.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(PipelineError, match=f"process {other.pid} on .* is working on"):
            archive.tree.lock("archive").__enter__()
        with archive.tree.lock("compact"):
            pass
        other.kill()
    assert (archive.root / "_lock-archive").read_text().startswith(f"process {other.pid} ")
    with archive.tree.lock("archive"):
        assert f"process {os.getpid()} " in (archive.root / "_lock-archive").read_text()


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    cases: list[tuple[Any, str]] = [
        (lambda: manifests.begin(open_tree(str(tmp_path / "full"))), "not empty"),
        (lambda: archive_files(str(tmp_path), "records"), "holds no archive"),
        (lambda: archive_files(str(tmp_path), "jobs"), "no table 'jobs'"),
        (lambda: run_compact(str(tmp_path)), "holds no archive"),
    ]
    for call, message in cases:
        with pytest.raises(PipelineError, match=message):
            call()
    archive = Archive(tmp_path / "archive")
    archive.epoch(0, rows([1]))
    path = archive.root / manifests.manifest_name("records-0001", 0)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole.replace(b'"v": 1', b'"v": 2')):
        path.write_bytes(damaged)
        with pytest.raises(PipelineError, match=r"cannot be read|later version"):
            archive.seqs()


# -- compaction -----------------------------------------------------------------------------------


def test_compaction(archive: Archive) -> None:
    """Days that are over are merged, whole; readers that began before find their files."""
    for epoch, (day, seqs) in enumerate([(0, [1, 2]), (0, [3]), (0, [5]), (1, [6]), (1, [7])]):
        archive.epoch(epoch, rows(seqs, day=day))
    before = archive_files(str(archive.root), "records")
    (left_over,) = archive.write(rows([8, 9], day=1))
    told = run_compact(str(archive.root))
    assert told["tables"]["records"] == {"merged": 3, "made": 1, "deleted": 0, "bytes_deleted": 0}
    assert sorted(archive.seqs()) == [1, 2, 3, 5, 6, 7]
    assert len(archive_files(str(archive.root), "records")) == 3
    assert all(Path(path).exists() for path in before)
    assert [hole.first for hole in holes(archive.tree, "records")] == [4]
    assert run_compact(str(archive.root))["tables"]["records"]["made"] == 0
    later = max(path.stat().st_mtime for path in archive.root.rglob("*")) + KEPT_S + 1
    told = run_compact(str(archive.root), now_s=lambda: later)
    assert told["tables"]["records"]["deleted"] == 4
    assert not (archive.root / left_over.entry.path).exists()
    archive.epoch(5, rows([10], day=2))
    assert sorted(archive.seqs()) == [1, 2, 3, 5, 6, 7, 10]
    assert run_compact(str(archive.root))["tables"]["records"]["merged"] == 2


def test_compaction_in_parts(archive: Archive) -> None:
    """Files grow up to the target; those of another shape stay apart."""
    for seq in range(1, 7):
        archive.epoch(seq - 1, rows([seq]))
    odd = rows([7]).append_column("more", pa.array([1]))
    archive.epoch(6, odd)
    archive.epoch(7, rows([8], day=1))
    size = live_entries(archive.tree, "records")[0].bytes
    told = run_compact(str(archive.root), target_bytes=round(size * 3.5))
    assert told["tables"]["records"]["merged"] == 6 and told["tables"]["records"]["made"] == 2
    assert sorted(archive.seqs()) == [*range(1, 9)]


def compactable(root: Path) -> Archive:
    """Three topics, two days that are over, ranges that overlap within an epoch."""
    archive = Archive(root)
    for epoch in range(12):
        first = 1 + 10 * epoch
        parts = [rows(range(first, first + 10), day=epoch // 5)]
        if epoch % 4 == 0:
            parts.append(rows([first, first + 1], "twice", "ab12-5", day=epoch // 5))
        # Two tasks with every second record each: their ranges overlap.
        parts += [
            rows(range(first, first + 10, 2), "mixed", "ab12-6", day=epoch // 5),
        ]
        files = archive.write(*parts)
        files += archive.write(rows(range(first + 1, first + 10, 2), "mixed", "ab12-6",
                                    day=epoch // 5))  # fmt: skip
        archive.settle(epoch, files)
    return archive


def content(archive: Archive) -> list[tuple[str, int]]:
    """Every row that a reader gets, in order; each file is sorted."""
    found: list[tuple[str, int]] = []
    for file in archive_files(str(archive.root), "records"):
        table = pq.read_table(file, partitioning=None)
        seqs = table.column("seq").to_pylist()
        assert seqs == sorted(seqs)
        found += zip(table.column("topic").to_pylist(), seqs, strict=True)
    return sorted(found)


def test_overlapping_files_are_merged_in_order(archive: Archive) -> None:
    archive = compactable(archive.root)
    before = content(archive)
    told = run_compact(str(archive.root))["tables"]["records"]
    assert told["merged"] > 2 * told["made"] > 0
    assert content(archive) == before
    live = live_entries(archive.tree, "records")
    for entry in live:
        table = pq.read_table(archive.root / entry.path, partitioning=None)
        seqs = table.column("seq").to_pylist()
        assert (min(seqs), max(seqs), len(seqs)) == (entry.first, entry.last, entry.rows)
    assert run_compact(str(archive.root))["tables"]["records"]["made"] == 0


def test_a_merged_file_of_events_says_what_its_parts_said(tmp_path: Path) -> None:
    """Also where an older version wrote them, which said nothing of jobs and floors."""
    archive = Archive(tmp_path / "events", "lease_events")
    for epoch, jobs in enumerate(([5, 9], [2], [7, 7])):
        of_epoch = rows(range(10 * epoch, 10 * epoch + len(jobs)), place="lseq")
        of_epoch = of_epoch.set_column(0, "job_seq", pa.array(jobs, pa.int64()))
        if epoch == 1:
            of_epoch = of_epoch.set_column(1, "event", pa.array(["trimmed"]))
        written = archive.write(of_epoch)
        if epoch == 0:
            unsaid = dict.fromkeys(("floors", "job_first", "job_last"), manifests.UNKNOWN)
            written = [
                FileWritten(msgspec.structs.replace(file.entry, **unsaid), file.runs)
                for file in written
            ]
        archive.settle(epoch, written)
    archive.epoch(3, rows([40], place="lseq", day=1))
    assert run_compact(str(archive.root))["tables"]["lease_events"]["merged"] == 3
    [entry] = [entry for entry in live_entries(archive.tree, "lease_events") if entry.rows > 1]
    assert (entry.floors, entry.job_first, entry.job_last) == (1, 2, 9)


def test_a_compaction_that_is_killed_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see all rows once, and the next compaction completes it."""
    monkeypatch.setattr(compaction, "GROUPS_PER_MANIFEST", 2)
    first = compactable(tmp_path / "first")
    before = content(first)
    shutil.copytree(first.root, tmp_path / "whole")
    whole = Archive(tmp_path / "whole")
    run_compact(str(whole.root))
    after = len(live_entries(whole.tree, "records"))
    kind = type(whole.tree)
    steps = 0
    for dies_at in swept(0, 100, offset=0, every=4):
        shutil.copytree(first.root, tmp_path / str(dies_at))
        killed = Archive(tmp_path / str(dies_at))
        calls = iter(range(1000))

        def dying(name: str) -> Any:
            method = getattr(kind, name)

            def step(*told: Any) -> Any:
                if next(calls) == dies_at:  # noqa: B023
                    raise KeyboardInterrupt
                return method(*told)

            return step

        with monkeypatch.context() as patched:
            for name in ("add", "create", "remove"):
                patched.setattr(kind, name, dying(name))
            try:
                run_compact(str(killed.root))
                break
            except KeyboardInterrupt:
                steps += 1
        assert content(killed) == before
        run_compact(str(killed.root))
        assert content(killed) == before
        assert len(live_entries(killed.tree, "records")) == after
    assert steps > 2


@pytest.mark.spark
def test_tasks_merge_what_one_process_merges(spark: SparkSession, tmp_path: Path) -> None:
    here, there = compactable(tmp_path / "here"), compactable(tmp_path / "there")
    told = run_compact(str(here.root))
    assert run_compact(str(there.root), spark=spark)["tables"] == told["tables"]
    entries = [live_entries(archive.tree, "records") for archive in (here, there)]
    assert entries[0] == entries[1]
    assert content(here) == content(there)


def test_a_damaged_file_is_not_merged(archive: Archive) -> None:
    for epoch, day in enumerate((0, 0, 1)):
        archive.epoch(epoch, rows([epoch + 1], day=day))
    path = Path(archive_files(str(archive.root), "records")[1])
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(PipelineError, match="damaged: its manifest has another sha256"):
        run_compact(str(archive.root))
    assert manifests.epochs(archive.tree, "records-compact") == []


# -- delta ----------------------------------------------------------------------------------------


def delta_seqs(root: Path) -> list[int]:
    """What a reader of the Delta table gets."""
    from deltalake import DeltaTable

    table = DeltaTable(str(root / "records")).to_pyarrow_table()
    return sorted(table.column("seq").to_pylist())


def test_a_delta_table_holds_what_the_manifests_say(archive: Archive) -> None:
    """Every epoch once, however often it is told; compacted files too."""
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    assert sync(archive.tree, "records") == 0
    for epoch, (day, seqs) in enumerate([(0, [1, 2]), (0, [3]), (1, [4])]):
        archive.epoch(epoch, rows(seqs, topic="a:b", day=day))
        sync(archive.tree, "records")
        sync(archive.tree, "records")
    assert delta_seqs(archive.root) == [1, 2, 3, 4]
    table = DeltaTable(str(archive.root / "records"))
    assert (table.version(), table.transaction_version("records-0001")) == (2, 2)
    archive.epoch(3, rows([5], topic="a:b", day=1))
    assert delta_seqs(archive.root) == [1, 2, 3, 4], "a crash between manifest and Delta"
    assert sync(archive.tree, "records") == 1
    assert sync(archive.tree, "records") == 0
    assert run_compact(str(archive.root))["tables"]["records"]["made"] == 1
    files = sorted((archive.root / "records" / "_delta_log").glob("*.json"))
    changes = [json.loads(line) for line in files[-1].read_text().splitlines()]
    flags = {
        kind: [change[kind]["dataChange"] for change in changes if kind in change]
        for kind in ("add", "remove")
    }
    assert flags == {"add": [False], "remove": [False, False]}, "a merge changes no data"
    first = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert [change["add"]["dataChange"] for change in first if "add" in change] == [True]
    later = max(path.stat().st_mtime for path in archive.root.rglob("*")) + KEPT_S + 1
    assert run_compact(str(archive.root), now_s=lambda: later)["tables"]["records"]["deleted"] == 2
    assert delta_seqs(archive.root) == [1, 2, 3, 4, 5]
    stats = DeltaTable(str(archive.root / "records")).get_add_actions(flatten=True)
    assert sum(pa.table(stats).column("num_records").to_pylist()) == 5


# -- places and versions --------------------------------------------------------------------------


def test_an_archive_in_an_object_store(tmp_path: Path) -> None:
    """The same layout, merged and cleaned up alike."""
    tree = open_tree(f"memory://{tmp_path.name}-{os.getpid()}/archive")
    manifests.begin(tree)
    manifests.begin(tree)
    held = contents(tree, "records")
    for epoch, day in enumerate((0, 0, 1)):
        written = write_batches(tree, "records", [rows([epoch + 1], day=day)])

        def manifest(files: Any, epoch: int = epoch) -> Manifest:
            return Manifest(table="records", archive="records-0001", epoch=epoch, files=files)

        commit(tree, held, written, manifest)
    assert run_compact(tree.url)["tables"]["records"]["merged"] == 2
    files = archive_files(tree.url, "records")
    assert all(file.startswith(f"{tree.url}/records/topic=orders/") for file in files)
    found = [
        pq.read_table(tree.source(entry.path)).column("seq").to_pylist()
        for entry in live_entries(tree, "records")
    ]
    assert sorted(found) == [[1, 2], [3]]


def test_a_manifest_names_only_files_that_are_there(archive: Archive) -> None:
    """Executors may have written them to a disk of their own."""
    written = archive.write(rows([1]), rows([2], topic="b", log_id="ab12-4"))
    (archive.root / written[0].entry.path).unlink()
    with pytest.raises(PipelineError, match="1 of 2 files that tasks have written are not in"):
        archive.settle(0, written)
    assert manifests.epochs(archive.tree, "records-0001") == []


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"v": 2, "tables": {}}, "the layout has version 2, and this logqueue knows up to 1"),
        ({"v": 1, "tables": {"records": 2}}, "table records has version 2"),
        ({"v": 1, "tables": {"records": 1, "news": 1}}, "table news has version 1"),
        ({"v": 1}, "does not say what the archive holds"),
    ],
)
def test_an_archive_of_a_later_version_is_refused(
    archive: Archive, schema: dict[str, Any], says: str
) -> None:
    (archive.root / "_schema.json").write_text(json.dumps(schema))
    for call in (archive.seqs, lambda: manifests.begin(archive.tree)):
        with pytest.raises(PipelineError, match=says):
            call()


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("ftp://host/a", "not a place this command knows: use a directory, s3://"),
        ("s3:/bucket/a", "not a place this command knows"),
        ("s3:bucket", "is not a URL"),
        ("s3://", "not a place in an object store: use s3://BUCKET"),
        ("file://host/a", "names another host"),
        ("hdfs://host/a", "reached by Spark alone"),
        ("", "not a place for files"),
    ],
)
def test_places_that_are_none(place: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a directory named `s3:`."""
    # As where no engine reaches it.
    monkeypatch.setattr(opening, "_hadoop", [])
    before = os.listdir()
    with pytest.raises(PipelineError, match=says):
        open_tree(place)
    assert os.listdir() == before


def test_the_ways_to_write_a_directory(tmp_path: Path) -> None:
    for text in (f"{tmp_path}/a:b", f"file:{tmp_path}/a:b", f"file://{tmp_path}/a:b"):
        assert open_tree(text).url == f"{tmp_path}/a:b"
    assert open_tree("a:b").url == os.path.abspath("a:b")
