"""`logqueue pipeline sql` on DuckDB: what a query sees, how its rows are printed, what it reads."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.cli import main
from logqueue.client import Client
from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.stores.parts import InputPart
from logqueue.testing import ServerProcess
from tests.spark.crafted import START_MS, CraftedLog

START = "2023-11-14T22:13:20.000+00:00"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue and a log, in several segments, an hour apart."""
    path = tmp_path_factory.mktemp("sql") / "data"
    with CraftedLog(path) as log:
        log.topic(1, "mails", type="queue")
        log.topic(2, "notes")
        for first in (1, 11, 21):
            log.append(1, first, 10)
            log.claim(1, *range(first, first + 4))
            log.ack(1, first, first + 1)
            log.roll()
            log.at += 3_600_000
        log.append(2, 1, 5)
    assert log.at == START_MS + 3 * 3_600_000
    return path


@pytest.fixture(autouse=True)
def no_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _sql(capsys: pytest.CaptureFixture[str], data: Path, query: str, *more: str) -> Any:
    assert main(["pipeline", "sql", "--path", str(data), query, "--json", *more]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_both_tables_in_every_format(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "select topic, count(*) n, sum(seq) s, min(ts) t from records group by 1 order by 1"
    notes = "2023-11-15T01:13:20.000+00:00"
    rows = [
        {"topic": "mails", "n": 30, "s": 465, "t": START},
        {"topic": "notes", "n": 5, "s": 15, "t": notes},
    ]
    assert _sql(capsys, data, query) == rows
    words = ["pipeline", "sql", "--path", str(data), query, "--engine", "duckdb"]
    assert main([*words, "--format", "csv"]) == 0
    assert [*csv.DictReader(capsys.readouterr().out.splitlines())] == [
        {name: str(value) for name, value in row.items()} for row in rows
    ]
    assert main(words) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["topic", "n", "s", "t"],
        ["mails", "30", "465", START],
        ["notes", "5", "15", notes],
    ]
    joined = (
        "select count(*) n from records r join lease_events e on e.job_seq = r.seq "
        "and e.log_id = r.log_id where event = 'claimed'"
    )
    assert _sql(capsys, data, joined) == [{"n": 12}]
    assert _sql(capsys, data, joined, "--topics", "notes") == [{"n": 0}]


def test_times_are_utc_wherever_this_is(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    query = (
        "select date_trunc('day', min(ts)) d, min(ts)::text t, max(deadline) e from lease_events"
    )
    try:
        rows = _sql(capsys, data, query)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert rows == [
        {
            "d": "2023-11-14T00:00:00.000+00:00",
            "t": "2023-11-14 22:13:20+00",
            "e": "2023-11-15T00:13:50.000+00:00",
        }
    ]


def test_no_more_rows_than_asked_for(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pipeline", "sql", "--path", str(data), "select seq from records order by seq"]
    assert main([*words, "--limit", "3", "--format", "csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == ["seq", "1", "1", "2"]
    assert printed.err == "only the first 3 rows; --limit shows more\n"
    assert main([*words, "--limit", "35"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selct 1", "syntax error"),
        ("select nope from records", '"nope" not found'),
        ("select * from nothing", "nothing does not exist"),
        ("select 1/0::int, cast('x' as int)", "'x'"),
    ],
)
def test_a_query_that_fails_is_one_line(
    data: Path, capsys: pytest.CaptureFixture[str], query: str, said: str
) -> None:
    assert main(["pipeline", "sql", "--path", str(data), query]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("logqueue pipeline: ") and said in line


def test_tables_of_parquet_files(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's"
    (folder / "jobs" / "date=2026-01-31").mkdir(parents=True)
    rows = pa.table({"seq": [1, 2], "state": ["acked", "held"]})
    pq.write_table(rows, folder / "jobs" / "date=2026-01-31" / "a.parquet")
    pq.write_table(rows.slice(1), folder / "report_x.parquet")
    query = "select j.seq, j.date::text d, x.state from jobs j left join report_x x using (seq)"
    found = _sql(capsys, data, query + " order by 1", "--tables", str(folder))
    assert found == [
        {"seq": 1, "d": "2026-01-31", "state": None},
        {"seq": 2, "d": "2026-01-31", "state": "held"},
    ]
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["pipeline", "sql", "--path", str(data), "select 1", "--tables", str(empty)]
    assert main(words) == 3
    assert "holds no table" in capsys.readouterr().err


def test_only_what_a_query_needs_is_read(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, set[str]]] = []
    read = LocalInput.read

    def noted(
        self: LocalInput, parts: Sequence[InputPart], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        asked.append((len(parts), set(columns or ())))
        return read(self, parts, columns)

    monkeypatch.setattr(LocalInput, "read", noted)
    later = "where ts >= timestamptz '2023-11-14 23:00:00+00' and ts < '2023-11-15 00:00:00+00'"
    assert _sql(capsys, data, f"select count(*) n from records {later}") == [{"n": 10}]
    assert asked == [(1, {"topic", "ts"})]
    asked.clear()
    assert _sql(capsys, data, "select max(seq) m from records where topic = 'notes'") == [{"m": 5}]
    assert asked == [(1, {"topic", "seq"})]
    asked.clear()
    assert _sql(capsys, data, "select 1 one") == [{"one": 1}]
    assert asked == []


def test_a_server_and_a_key_that_may_not_see_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "root,tenant:read:notes"
    with ServerProcess(tmp_path / "data", API_KEYS=keys) as server:
        with Client(server.url, "root", node="w") as client:
            client.put_topic("mails", type="queue")
            client.append("mails", ["a", "b", "c"])
            client.append("notes", [1, 2], create=True)
            client.ack("mails", client.claim("mails", max=2).jobs)
        both = "select topic, count(*) n from records group by 1 order by 1"
        words = ["pipeline", "sql", "--url", server.url, "--json", "--token"]
        assert main([*words, "root", both]) == 0
        events = "select event, count(*) n from lease_events group by 1 order by 1"
        assert main([*words, "root", events]) == 0
        assert main([*words, "tenant", both]) == 0
        assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
            {"topic": "mails", "n": 3},
            {"topic": "notes", "n": 2},
            {"event": "acked", "n": 2},
            {"event": "claimed", "n": 2},
            {"topic": "notes", "n": 2},
        ]
        assert main([*words, "tenant", events]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "the key may not do this" in line
