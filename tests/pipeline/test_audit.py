"""The audit as a whole: nothing about a clean log, one finding for each fault, every time alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logqueue.client import Client, EpochPart, NewRecord
from logqueue.pipeline.audit.run import RULES
from logqueue.pipeline.engines.duckdb.audit.job import run_audit
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.tables import AUDIT_FINDINGS
from logqueue.pipeline.reading.place import InputPlace
from logqueue.testing.process import ServerProcess
from tests.pipeline.archiving import archive as archive_log
from tests.pipeline.audit_faults import QUEUE, Place, write_faults
from tests.spark.crafted import (
    CraftedLog,
    appended,
    segments,
)


def run(directory: Path, to: Path, **more: Any) -> dict[str, Any]:
    return run_audit(InputPlace(path=str(directory)), str(to), **more)


def places(to: Path) -> list[Place]:
    rows = [json.loads(line) for line in (to / "audit_findings.json").read_text().splitlines()]
    names = ("rule", "severity", "topic", "first_seq", "last_seq")
    return [tuple(row[name] for name in names) for row in rows]


# -- a log that a server wrote ---------------------------------------------------------------------


def live_a_life(client: Client) -> None:
    """Every way for a job to come to its end, and much else that leaves traces in the logs."""
    client.put_topic(
        "jobs", type="queue", dead_letter="jobs.dead", archive="jobs.done", max_deliveries=3
    )
    client.put_topic("held", type="queue", max_deliveries=1, on_exhausted="hold")
    client.put_topic("capped", type="queue", cap_records=5, archive="capped.done")
    client.put_topic("safe", type="queue", leases_durable=True, durability="fsync")
    client.put_router("r", "jobs", "copies", create_dest=True)
    for start in range(0, 300, 50):
        client.append(
            "jobs",
            [NewRecord({"n": n}, tag=f"t{n % 3}") for n in range(start, start + 50)],
            create=True,
        )
    acked = client.claim("jobs", max=200, node="w1").jobs
    client.extend("jobs", [job.seq for job in acked[:50]], node="w1", lease_ms=60_000)
    client.ack("jobs", [job.seq for job in acked[:150]], node="w1")
    client.reject("jobs", [job.seq for job in acked[150:160]], node="w1", error="no")
    for _ in range(3):
        client.nack("jobs", [job.seq for job in acked[160:170]], node="w1", error="boom")
        client.claim("jobs", max=10, node="w1")
    client.nack("jobs", [job.seq for job in acked[160:170]], node="w1")
    client.claim("jobs", max=10, node="w2")
    client.redrive("jobs.dead", seqs=[1, 2, 3], limit=10)
    client.nack("jobs", [job.seq for job in acked[170:180]], node="w1", delay_ms=3_600_000)
    client.nack("jobs", [job.seq for job in acked[180:190]], node="w1", count=False)
    client.append(
        "jobs", [NewRecord({"later": n}, delay_ms=3_600_000) for n in range(3)], create=True
    )
    client.cancel("jobs", acked[181].seq)
    client.append("held", list(range(3)), create=True)
    jobs = client.claim("held", max=3, node="w1").jobs
    client.nack("held", [job.seq for job in jobs], node="w1")
    client.claim("held", max=3, node="w1")
    client.release("held", [jobs[0].seq])
    client.claim("held", max=3, node="w1")
    client.append("capped", list(range(12)), create=True)
    client.pause("safe")
    client.append("safe", list(range(70)), create=True)
    client.claim("safe", max=70, node="w1")
    client.resume("safe")
    client.claim("safe", max=70, node="w1")
    client.ack("safe", list(range(1, 66)), node="w1")
    client.delete_records("safe", before_seq=68)
    for epoch in (4, 5):
        client.stage("etl", epoch, "jobs", list(range(10)))
        client.commit("etl", epoch, [EpochPart(1, 10)])


def test_a_clean_log_has_no_findings_and_its_account_adds_up(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        live_a_life(client)
        jobs = client.topic("jobs")
    summary = run(tmp_path / "data", tmp_path / "out")
    assert places(tmp_path / "out") == []
    assert summary["findings"] == {"error": 0, "warning": 0, "info": 0}
    queue = summary["account"]["by_topic"]["jobs"]
    states = {name: queue[name] for name in ("acked", "dead_lettered", "cancelled", "open")}
    assert jobs.queue is not None
    assert states == {
        "acked": jobs.queue.acked,
        "dead_lettered": jobs.queue.dead_lettered,
        "cancelled": 1,
        "open": jobs.count,
    }
    assert queue["appended"] == 326 and queue["unaccounted"] == 0
    assert summary["account"]["by_topic"]["capped"]["trimmed"] == 7
    assert summary["account"]["unaccounted"] == 0


# -- logs that no server would have written --------------------------------------------------------


def test_each_fault_is_one_finding_with_the_right_range(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as log:
        expected = write_faults(log)
    summary = run(tmp_path / "data", tmp_path / "out")
    assert sorted(places(tmp_path / "out"), key=str) == sorted(expected, key=str)
    assert summary["findings"]["error"] == len(expected)
    by_topic = summary["account"]["by_topic"]
    assert by_topic["two_ends"]["unaccounted"] == 1
    assert by_topic["two_leases"]["open"] == 100
    assert by_topic["past_the_floor"]["trimmed"] == 4
    before = (tmp_path / "out" / "audit_findings.json").read_bytes()
    again = run(tmp_path / "data", tmp_path / "out")
    assert (tmp_path / "out" / "audit_findings.json").read_bytes() == before
    assert again["audit_id"] == summary["audit_id"]
    table = pq.read_table(tmp_path / "out" / "audit_findings")
    assert table.column_names == [column.name for column in AUDIT_FINDINGS.columns]


def test_damage_is_the_one_finding_and_the_rest_is_left_out(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "orders", **QUEUE)
        log.append(1, 1, 10)
        log.append(1, 11, 10)
        log.append(1, 21, 10)
        log.roll()
        log.claim(1, *range(1, 31))
        log.ack(1, *range(1, 31))
    path, _ = segments(tmp_path / "data")
    data = bytearray(path.read_bytes())
    data[data.index(b"11121314")] ^= 1
    path.write_bytes(data)
    summary = run(tmp_path / "data", tmp_path / "out")
    assert places(tmp_path / "out") == [("frame_crc", "error", "orders", 11, 20)]
    assert "damaged" in summary["skipped"]["one_lease"]


def test_two_places_that_differ(tmp_path: Path) -> None:
    for name, data, behind, last in (("here", "70", 100, 200), ("there", '"70"', 102, 190)):
        with CraftedLog(tmp_path / name) as log:
            log.topic(1, "orders", durability="fsync")
            log.append(1, 1, 69)
            log.log(appended(log.at, 1, 70, 1, data=data))
            log.append(1, 71, 29)
            log.append(1, behind, last - behind + 1)
    against = InputPlace(path=str(tmp_path / "there"))
    rules = ["same_records"]
    run(tmp_path / "here", tmp_path / "out", against=against, rules=rules)
    assert places(tmp_path / "out") == [
        ("same_records", "error", "orders", 70, 70),
        ("same_records", "error", "orders", 100, 101),
        ("same_records", "info", "orders", 191, 200),
    ]


def test_an_archive_is_the_same_as_its_log_until_somebody_touches_it(tmp_path: Path) -> None:
    with CraftedLog(tmp_path / "data") as log:
        log.topic(1, "orders", **QUEUE)
        for first in range(1, 101, 10):
            log.append(1, first, 10)
        log.claim(1, *range(1, 101))
        log.ack(1, *range(1, 91))
    log_input, root = InputPlace(path=str(tmp_path / "data")), tmp_path / "archive"
    source = {"path": str(tmp_path / "data")}
    archive_log(source, root, topics="orders", maxRecordsPerTrigger="50")
    archive = InputPlace(archive=str(root))
    summary = run_audit(archive, str(tmp_path / "out"), against=log_input)
    assert places(tmp_path / "out") == []
    assert summary["account"]["acked"] == 90 and summary["account"]["open"] == 10
    part, _ = sorted((root / "records").rglob("*.parquet"))
    kept = part.read_bytes()
    part.write_bytes(kept[:-1] + b"\0")
    run_audit(archive, str(tmp_path / "out"))
    assert places(tmp_path / "out") == [("manifest_files", "error", "orders", 1, 50)]
    part.write_bytes(kept)
    next(root.glob("_manifest/records-*/0000000000.json")).unlink()
    run_audit(archive, str(tmp_path / "out"))
    assert places(tmp_path / "out") == [("manifest_joints", "error", "orders", 1, 50)]


def test_rules_have_names_of_their_own_and_others_are_refused(tmp_path: Path) -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    with pytest.raises(PipelineError, match="no audit rule 'nosuch'; rules are frame_crc, "):
        run(tmp_path, tmp_path / "out", rules="one_end,nosuch")
    with pytest.raises(PipelineError, match="no log in"):
        run(tmp_path, tmp_path / "out")
