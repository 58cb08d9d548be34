"""`logqueue pipeline`: every action once, over a server with a little in it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logqueue.cli import main, pipeline_jobs, pipeline_runs
from logqueue.cli.pipeline_runs import noted_sigterm
from logqueue.cli.pipeline_sql import _plain, answer
from logqueue.client import Client
from logqueue.pipeline.archive import loop
from logqueue.shapes import Record
from logqueue.testing import ServerProcess
from tests import readme
from tests.house import ROOT, page

JOBS, ACKED, DEAD = 40, 30, 5
RUN_S = 240.0


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        """Its one line of JSON."""
        (line,) = self.out.splitlines()
        told: dict[str, Any] = json.loads(line)
        return told


@dataclass(frozen=True)
class Place:
    """A server that runs, and a folder for what is made of its data."""

    folder: Path
    data: Path
    url: str

    def command(self, *arguments: str) -> tuple[list[str], dict[str, Any]]:
        """How to start an action, as `subprocess` takes it."""
        kept = {name: value for name, value in os.environ.items() if name[:9] != "LOGQUEUE_"}
        environment = {**kept, "PYTHONPATH": str(ROOT), "LOGQUEUE_URL": self.url}
        command = [sys.executable, "-m", "logqueue", "pipeline", *arguments]
        return command, {"env": environment, "cwd": self.folder, "stdin": subprocess.DEVNULL}

    def run_here(self, *arguments: str) -> Ended:
        """Run an action in this process, in the session that is open."""
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setenv("LOGQUEUE_URL", self.url)
            status = main(["pipeline", *arguments])
        return Ended(status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Forty jobs: thirty acked, five dead letters, five in flight."""
    folder = tmp_path_factory.mktemp("pipeline")
    with ServerProcess(folder / "data") as server, Client(server.url, node="w1") as client:
        # What happens to leases is on the disk when it is answered, where it is read at once.
        client.put_topic(
            "work", type="queue", max_deliveries=1, dead_letter="work.dead", leases_durable=True
        )
        client.append("work", [{"n": n} for n in range(JOBS)], create=True)
        jobs = client.claim("work", max=JOBS).jobs
        # The acks come last, since both logs have them: of a log that is being written to, only
        # what both have passed is read.
        client.reject("work", jobs[ACKED : ACKED + DEAD], error="no disk")
        client.ack("work", jobs[:ACKED])
        rows = "".join(json.dumps({"data": json.dumps({"row": n})}) + "\n" for n in range(20))
        (folder / "rows.json").write_text(rows)
        yield Place(folder, folder / "data", server.url)


def readme_commands(place: Place) -> dict[str, list[str]]:
    """What README.md says to run, over the files of a server that runs; by name of the action."""
    prefix = "logqueue pipeline "
    commands = {}
    for block in readme.shell_blocks(page("README.md")):
        for line in block.commands():
            if line.startswith(prefix):
                words = shlex.split(line.removeprefix(prefix))
                assert words[1:5] == ["--path", "logqueue-data", "--to", words[0]]
                words[2], words[4] = str(place.data), str(place.folder / words[0])
                commands[words[0]] = words
    return commands


@pytest.fixture(scope="module")
def ended(place: Place, spark: object) -> Mapping[str, Ended]:
    """Each action, run once in the session that is open; two of them as README.md says."""
    names = ("archive", "tables", "rows.json")
    at = {name: str(place.folder / name) for name in names}
    data = ("--path", str(place.data))
    archive = ("--archive", at["archive"])
    counted = "select event, count(*) as n from lease_events group by event order by event"
    actions = {
        "archive": ("archive", *data, "--topics", "work", "--to", at["archive"]),
        "compact": ("compact", *archive),
        "lifecycle": ("lifecycle", *archive, "--to", at["tables"]),
        **readme_commands(place),
        "sql": ("sql", *archive, "--format", "csv", counted),
        "backfill": (
            *("backfill", "--from", at["rows.json"], "--format", "json"),
            *("--to-topic", "filled", "--write-id", "one"),
        ),
        "redrive": ("redrive", "--dead-topic", "work.dead", "--write-id", "two", "--dry-run"),
    }
    return {name: place.run_here(*told) for name, told in actions.items()}


ACTIONS = ("archive", "compact", "lifecycle", "report", "audit", "backfill", "redrive")


@pytest.mark.spark
@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_ends_with_one_line_of_json(name: str, ended: Mapping[str, Ended]) -> None:
    done = ended[name]
    assert done.status == 0, done.err
    assert done.summary["job"] == name
    assert done.summary["seconds"] > 0
    assert "WARN" not in done.err and "Exception" not in done.err


@pytest.mark.spark
def test_what_the_actions_did(place: Place, ended: Mapping[str, Ended]) -> None:
    tables = ended["archive"].summary["tables"]
    assert tables["records"]["rows"] == JOBS
    assert ended["lifecycle"].summary["rows"]["jobs"] == JOBS
    assert (place.folder / "tables" / "jobs").is_dir()
    reports = {path.suffix for path in (place.folder / "report").iterdir() if path.is_file()}
    assert {".csv", ".html"} <= reports
    assert (place.folder / "report" / "report.html").is_file()
    assert sum(ended["audit"].summary["findings"].values()) == 0
    assert ended["backfill"].summary["written"] == 20
    with Client(place.url) as client:
        written = [
            record.data["row"] for record in client.read("filled") if isinstance(record, Record)
        ]
    assert sorted(written) == [*range(20)]
    assert ended["redrive"].summary["selected"] == DEAD
    rows = list(csv.reader(ended["sql"].out.splitlines()))
    counts = {event: int(n) for event, n in rows[1:]}
    assert rows[0] == ["event", "n"]
    assert (counts["claimed"], counts["acked"], counts["dead_lettered"]) == (JOBS, ACKED, DEAD)


@pytest.mark.spark
def test_a_query_in_a_session_that_is_open_leaves_it_open(
    place: Place, ended: Mapping[str, Ended], spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = ("--tables", str(place.folder / "tables"))
    query = (
        "select state, count(*) as n, named_struct('first', min(seq)) as s, "
        "max(appended_at) as at from jobs group by state order by state"
    )
    archive = ("--archive", str(place.folder / "archive"))
    sql = ("pipeline", "sql", "--engine", "spark", *archive)
    status = main([*sql, *tables, "--json", query])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["state"]: row["n"] for row in rows}["acked"] == ACKED
    assert rows[0]["s"] == {"first": 1} and rows[0]["at"].endswith("+00:00")
    assert main([*sql, "--limit", "2", "select seq from records"]) == 0
    out, err = capsys.readouterr()
    assert out.split()[0] == "seq" and len(out.splitlines()) == 3
    assert err == "only the first 2 rows; --limit shows more\n"
    assert main([*sql, "select nothing from records"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("logqueue pipeline: [UNRESOLVED_COLUMN")
    assert len(err.splitlines()) == 1
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_query_shifts_no_time_whatever_the_zone_of_the_machine(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hours around the ends of daylight saving time, with and without a zone."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    texts = ("2026-03-08 02:30:00", "2026-11-01 05:30:00", "2026-11-01 06:30:00")
    columns = ", ".join(
        f"timestamp'{text}' AS a{n}, timestamp_ntz'{text}' AS b{n}" for n, text in enumerate(texts)
    )
    try:
        _, _, rows = answer(spark, f"select {columns}", 2)
        shown = [_plain(value) for value in rows[0]]
        assert (os.environ["TZ"], time.tzname[0]) == ("America/New_York", "EST")
    finally:
        monkeypatch.undo()
        time.tzset()
    wanted = [f"{text.replace(' ', 'T')}.000+00:00" for text in texts for _ in range(2)]
    assert shown == wanted


@pytest.mark.spark
def test_sigterm_ends_an_archive_that_goes_on_in_order(
    place: Place, ended: Mapping[str, Ended]
) -> None:
    """Once it has archived everything, and while it waits to look again."""
    root = place.folder / "continuous"
    is_over = threading.Event()

    def stop() -> None:
        while not is_over.wait(0.05):
            if list((root / "_manifest").glob("records-*/*.json")):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        done = place.run_here(
            *("archive", "--url", place.url, "--topics", "filled"),
            *("--to", str(root), "--every", "1h"),
        )
    finally:
        is_over.set()
        stopping.join()
    assert (done.status, done.summary["tables"]["records"]["rows"]) == (0, 20), done.err


@pytest.mark.spark
@pytest.mark.slow
def test_sigterm_ends_an_archive_process(place: Place, ended: Mapping[str, Ended]) -> None:
    command, how = place.command(
        *("archive", "--url", place.url, "--topics", "filled", "--to", "going", "--every", "1h")
    )
    process = subprocess.Popen(
        command, **how, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    manifests = place.folder / "going" / "_manifest"
    try:
        while process.poll() is None and not list(manifests.glob("*records*/*.json")):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert json.loads(out)["tables"]["records"]["rows"] == 20


# -- without Spark -------------------------------------------------------------------------------


def test_sigterm_is_noted_and_a_second_one_interrupts() -> None:
    """In the middle of a call to Java, an exception would mix up its replies."""
    before = signal.getsignal(signal.SIGTERM)
    with noted_sigterm() as is_over:
        assert not is_over()
        signal.raise_signal(signal.SIGTERM)
        assert is_over()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("flags", "fails"),
    [
        ((), True),
        (("--fail-on-data-loss",), True),
        (("--fail-on-data-loss", "false"), False),
        (("--fail-on-data-loss=true",), True),
    ],
)
def test_losses_of_an_archive_are_accepted_by_a_flag(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], fails: bool
) -> None:
    asked: list[bool] = []

    def run_archive(*args: Any, fail_on_data_loss: bool, **given: Any) -> dict[str, Any]:
        asked.append(fail_on_data_loss)
        return {"to": "x", "tables": {}}

    monkeypatch.setattr("logqueue.pipeline.engines.spark.archive.job.run_archive", run_archive)
    monkeypatch.setattr(pipeline_jobs, "run", lambda arguments, work, *_: work(None, None))
    assert main(["pipeline", "archive", "--path", "a", "--to", "x", *flags]) == 0
    assert asked == [fails]


def test_an_archive_that_goes_on_ends_between_two_looks() -> None:
    """A look is never cut short, and a long pause is."""
    told: list[str] = []
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        told.append(f"pause {seconds}")

    loop.repeat(lambda: told.append("look"), 2.5, lambda: len(told) >= 6, lambda: now, pause)
    assert told == ["look", "pause 1", "pause 1", "pause 0.5", "look", "pause 1"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("archive", "--to", "x"),
        ("archive", "--archive", "a", "--to", "x"),
        ("archive", "--path", "a", "--to", "x", "--once", "--every", "1m"),
        ("report", "--path", "a", "--url", "http://h", "--to", "x"),
        ("lifecycle", "--path", "a", "--topics", "a", "--pattern", "b", "--to", "x"),
        ("lifecycle", "--path", "a", "--topics", "a,,b", "--to", "x"),
        ("audit", "--path", "a", "--to", "x", "--conf", "nonsense"),
        ("audit", "--path", "a", "--to", "x", "--master", "local", "--remote", "sc://h"),
        ("backfill", "--from", "f", "--format", "xml", "--to-topic", "t", "--write-id", "w"),
        ("redrive", "--dead-topic", "t"),
        ("submit", "--master", "spark://h:1", "--", "doctor"),
        ("report", "--url", "http://h", "--token", "a", "--token-file", "b", "--to", "x"),
        ("report", "--url", "http://h", "--token-file", "/nowhere", "--to", "x", "--remote", "x"),
    ],
)
def test_what_can_not_be_meant_is_status_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["pipeline", *arguments])
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    out, err = capsys.readouterr()
    assert (status, out) == (2, "") and err and "Traceback" not in err


def test_without_the_packages_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["pipeline", "lifecycle", "--path", "data", "--to", "tables"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "logqueue pipeline: the data pipeline needs more packages: "
        "pip install 'logqueue[reports]'\n"
    )


def test_pack_and_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", "pack", "--output", "ours.zip"]) == 0
    out, err = capsys.readouterr()
    assert out == "ours.zip\n" and "must have msgspec, numpy, pyarrow" in err
    assert main(["pipeline", "pack", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == "logqueue.zip"
    (tmp_path / "logqueue.zip").unlink()
    submit = ["pipeline", "submit", "--master", "spark://h:7077"]
    report = ["--", "report", "--archive", "a b", "--to", "c"]
    assert main([*submit, "--conf", "spark.cores.max=2", *report]) == 0
    out, err = capsys.readouterr()
    program = ROOT / "logqueue" / "__main__.py"
    assert out.partition(" ")[0].endswith("spark-submit")
    assert out.partition(" ")[2] == (
        "--master spark://h:7077 --py-files logqueue.zip --conf spark.cores.max=2 "
        f"{program} pipeline report --archive 'a b' --to c\n"
    )
    assert err == "made logqueue.zip\n" and (tmp_path / "logqueue.zip").is_file()
    assert main([*submit, "--py-files", "logqueue-1.whl", *report]) == 1
    assert "is a wheel" in capsys.readouterr().err
    fake = tmp_path / "bin" / "spark-submit"
    fake.parent.mkdir()
    fake.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    def instead(program: str, command: list[str]) -> None:
        raise SystemExit(" ".join([program, command[-1]]))

    monkeypatch.setattr(os, "execvp", instead)
    with pytest.raises(SystemExit, match=f"^{fake} c$"):
        main([*submit, "--run", *report])


def test_the_doctor_speaks_in_lines_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["pipeline", "doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert status == (1 if any(line.startswith("missing") for line in lines) else 0)
    assert any("pyarrow" in line for line in lines)
    assert main(["pipeline", "doctor", "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["fit"] is (status == 0) and len(told["findings"]) == len(lines)


def test_little_input_is_told_from_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * 100)
    assert pipeline_runs.is_small((str(tmp_path),))
    assert not pipeline_runs.is_small(())
    assert not pipeline_runs.is_small((str(tmp_path), None))
    assert not pipeline_runs.is_small((str(tmp_path / "nowhere"),))
    monkeypatch.setattr(pipeline_runs, "SMALL_BYTES", 99)
    assert not pipeline_runs.is_small((str(tmp_path),))


def test_keys_come_from_a_file_a_flag_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import argparse

    held = tmp_path / "key"
    held.write_text("s3cret\n")
    monkeypatch.setenv("LOGQUEUE_TOKEN", "usual")
    for token, file, key in ((None, str(held), "s3cret"), ("t", None, "t"), (None, None, "usual")):
        asked = argparse.Namespace(token=token, token_file=file)
        assert pipeline_jobs.key_of(asked) == key
