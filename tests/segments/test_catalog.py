"""Directories with segments: alone, with an archive, damaged, of different logs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.model.config import TopicOptions
from logqueue.segments.catalog import (
    CatalogError,
    IndexCache,
    index_path,
    open_catalog,
)
from logqueue.segments.index import SegmentDamaged, encode_index
from logqueue.segments.plan import plan_events, plan_records
from logqueue.segments.walk import read_records
from tests.segments.catalogs import bytes_of, source_of
from tests.segments.histories import History, indexes_of
from tests.segments.transitions import transitions
from wal import Log


@pytest.fixture(scope="module")
def history() -> History:
    history = History(11)
    history.live(80)
    return history


@pytest.fixture
def cache(tmp_path: Path) -> IndexCache:
    return IndexCache(tmp_path / "cache")


def write(
    history: History, place: Path, first: int = 1, last: int = 10**6, *, is_archive: bool = False
) -> Path:
    """A directory with some segments of the jobs log and all of the leases log."""
    for log, segments in history.segments.items():
        (place / log).mkdir(parents=True)
        indexes = {index.segment: index for index in indexes_of(segments, log)}
        for segment, data in segments.items():
            if log == "jobs" and first <= segment <= last:
                path = place / log / f"{segment:020d}.wal"
                path.write_bytes(data)
                if is_archive:
                    index_path(path).write_bytes(encode_index(indexes[segment]))
            elif log == "leases" and not is_archive:
                (place / log / f"{segment:020d}.wal").write_bytes(data)
    return place


def test_a_data_directory_is_read_with_a_torn_tail(
    history: History, tmp_path: Path, cache: IndexCache
) -> None:
    data = write(history, tmp_path / "data")
    last = max((data / "jobs").iterdir())
    length = indexes_of(history.segments["jobs"])[-1].bytes
    last.write_bytes(last.read_bytes()[:length] + b"\x59\xc1\xa3\xf7 half a frame")
    catalog = open_catalog([data], cache=cache)
    assert not catalog.jobs[-1].is_sealed and all(f.is_sealed for f in catalog.jobs[:-1])
    assert catalog.jobs_indexes == indexes_of(history.segments["jobs"])
    planned = plan_records(catalog.jobs_indexes, dict.fromkeys(catalog.known.topics))
    assert pickle.loads(pickle.dumps(planned)) == planned, "other processes read them"
    rows = sum(
        records.count
        for read in planned
        for records in read_records(bytes_of(catalog, read), read, source_of(catalog))
    )
    assert rows == len(history.came)
    reads = plan_events(catalog.jobs_indexes, catalog.leases_indexes, catalog.known.topics)
    told = [event for read in reads for event in transitions(bytes_of(catalog, read), read)]
    assert {read.log for read in reads} == {"jobs", "leases"} and told


def test_a_log_is_read_while_it_is_written(tmp_path: Path, cache: IndexCache) -> None:
    log = Log.open(str(tmp_path / "jobs"), segment_bytes_max=4096 + 2000)
    created = ev.TopicCreated(1, 1, "t", TopicOptions().resolved())
    log.append(ev.encode(1, [created]), sync=True)
    block = blocks.pack([[b"1" * 100], None, None, None])
    for seq in range(1, 41):
        log.append(ev.encode(seq + 1, [ev.RecordsAppended(seq, 1, seq, 1, block)]), sync=False)
        while log.step():
            pass
        catalog = open_catalog([tmp_path], cache=cache)
        [topic] = catalog.known.topics
        reads = plan_records(catalog.jobs_indexes, {topic: [(max(1, seq - 1), seq)]})
        found = [
            records.first_seq
            for read in reads
            for records in read_records(bytes_of(catalog, read), read)
        ]
        assert found == [max(1, seq - 1), seq][-min(seq, 2) :]
    assert len(catalog.jobs) > 2 and not catalog.jobs[-1].is_sealed
    log.close()


def test_a_data_directory_and_its_archive_are_one(
    history: History, tmp_path: Path, cache: IndexCache
) -> None:
    ids = sorted(history.segments["jobs"])
    middle = ids[len(ids) // 2]
    archive = write(history, tmp_path / "archive", last=middle + 1, is_archive=True)
    data = write(history, tmp_path / "data", first=middle)
    for order in ([data, archive], [archive, data]):
        catalog = open_catalog(order, cache=cache)
        assert [file.segment for file in catalog.jobs] == ids
        assert catalog.gaps("jobs") == []
        expected = indexes_of(history.segments["jobs"])
        assert [i.crc32 for i in catalog.jobs_indexes] == [i.crc32 for i in expected]
    alone = open_catalog([archive], cache=cache)
    assert all(file.is_sealed for file in alone.jobs) and not alone.leases
    (archive / "jobs" / f"{ids[1]:020d}.wal").unlink()
    assert open_catalog([archive], cache=cache).gaps("jobs") == [(ids[1], ids[1])]


def test_a_damaged_index_is_made_anew(history: History, tmp_path: Path, cache: IndexCache) -> None:
    archive = write(history, tmp_path / "archive", is_archive=True)
    index = index_path(min((archive / "jobs").glob("*.wal")))
    index.write_bytes(index.read_bytes()[:-9])
    catalog = open_catalog([archive], cache=cache)
    assert catalog.jobs_indexes == indexes_of(history.segments["jobs"])


def test_indexes_of_sealed_segments_are_kept_in_the_cache(history: History, tmp_path: Path) -> None:
    data = write(history, tmp_path / "data")
    cache = IndexCache(tmp_path / "cache")
    first = open_catalog([data], cache=cache)
    kept = [*(tmp_path / "cache").rglob("*.idx")]
    assert len(kept) == len(first.jobs) + len(first.leases) - 2, "the last ones are not sealed"
    assert open_catalog([data], cache=cache) == first
    file = tmp_path / "file"
    file.write_text("no directory")
    assert open_catalog([data], cache=IndexCache(file)) == first


def test_different_logs_are_not_mixed(history: History, tmp_path: Path, cache: IndexCache) -> None:
    data = write(history, tmp_path / "data")
    other = tmp_path / "other" / "jobs"
    other.mkdir(parents=True)
    (data / "leases" / f"{1:020d}.wal").rename(other / f"{1:020d}.wal")
    with pytest.raises(CatalogError, match="are of different logs"):
        open_catalog([data, tmp_path / "other"], cache=cache)
    for nothing in (tmp_path / "missing", tmp_path):
        with pytest.raises(CatalogError, match=r"is not a directory|there is no log"):
            open_catalog([nothing], cache=cache)


def test_damage_names_the_file_and_the_place(
    history: History, tmp_path: Path, cache: IndexCache
) -> None:
    data = write(history, tmp_path / "data")
    second = sorted((data / "jobs").iterdir())[1]
    content = bytearray(second.read_bytes())
    content[5000] ^= 1
    second.write_bytes(content)
    with pytest.raises(SegmentDamaged, match="damaged at byte") as error:
        open_catalog([data], cache=cache)
    assert error.value.path == str(second)


def test_reading_segments_needs_neither_spark_nor_arrow() -> None:
    ask = (
        "import sys, logqueue.segments.catalog, logqueue.segments.walk; "
        "sys.exit(bool({'pyspark', 'pyarrow', 'numpy'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", ask], check=True)
    ask = "import sys, logqueue.pipeline.rows.segment_batches; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", ask], check=True)


def test_an_index_is_not_taken_for_a_segment_that_is_as_long(
    tmp_path: Path, cache: IndexCache
) -> None:
    """A backup was restored, and the log went on otherwise."""
    seen = []
    for word in ("one", "two"):
        place = tmp_path / word / "jobs"
        log = Log.open(str(place), segment_bytes_max=1, random_bytes=lambda count: b"x" * count)
        for order in (1, 2):
            kept = blocks.pack([[b'"%b"' % word.encode()]])
            event = ev.RecordsAppended(5, 1, order, 1, kept)
            log.append(ev.encode(order, [event]), sync=True)
            while log.step():
                pass
        log.close()
        catalog = open_catalog([tmp_path / word], cache=cache)
        (first, *_) = plan_records(catalog.jobs_indexes, {1: None})
        told = [*read_records(bytes_of(catalog, first), first)]
        seen.append((catalog.jobs[0].index.bytes, told[0].block == kept))
    assert seen[0] == seen[1] and seen[0][1]
