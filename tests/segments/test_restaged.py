"""A commit that stages chunks anew in its own frame, since the segment that had them goes."""

from __future__ import annotations

from pathlib import Path

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.segments.catalog import open_catalog
from logqueue.segments.plan import plan_records
from logqueue.segments.walk import read_records
from tests.segments.catalogs import bytes_of, source_of
from tests.spark.crafted import CraftedLog


def test_a_chunk_in_the_frame_of_its_commit_is_found(tmp_path: Path) -> None:
    chunk = blocks.pack([[b"1", b"2"], None, None, None])
    with CraftedLog(tmp_path) as log:
        log.topic(1, "t")
        staged = (log.at, 1, "p", 1, 0, "a", 0, chunk, 2, blocks.BlockView(chunk).size_total())
        log.log(
            ev.ChunkStaged(*staged),
            ev.ChunksCommitted(log.at, 1, "p", 1, [(0, "a", 0)], [2], 1),
            ev.EpochCommitted(log.at, 0, "p", 1, b"d" * 16, [("t", 1, 2)]),
        )
    catalog = open_catalog([tmp_path])
    found = [
        (records.first_seq, records.count, records.block)
        for read in plan_records(catalog.jobs_indexes, {1: None})
        for records in read_records(bytes_of(catalog, read), read, source_of(catalog))
    ]
    assert found == [(1, 2, chunk)]
