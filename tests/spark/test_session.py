"""Sessions: settings that jobs count on, what is refused, failures in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logqueue.pipeline.engines.spark.session import doctor, java, scratch, session
from logqueue.pipeline.errors import PipelineError, message_of
from tests.house import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_what_jobs_count_on(spark: SparkSession) -> None:
    for name, value in session.ALWAYS.items():
        assert spark.conf.get(name) == value
    assert session.open_session() is spark
    assert spark.conf.get("spark.driver.host") == session.LOOPBACK
    assert not Path("spark-warehouse").exists() and not Path("metastore_db").exists()
    # What started it concerns no other process.
    assert str(session.REGISTRATION) not in os.environ.get("PYTHONPATH", "")


@pytest.mark.spark
def test_a_failure_in_a_python_worker_is_one_line(spark: SparkSession) -> None:
    def refuse(batches: Iterator[Any]) -> Iterator[Any]:
        raise PipelineError("no such thing: make one")

    with pytest.raises(Exception) as failed:
        spark.range(1).coalesce(1).mapInArrow(refuse, "id long").collect()
    assert message_of(failed.value) == "no such thing: make one"
    with pytest.raises(Exception) as failed:
        spark.range(1).select("nothing").collect()
    assert message_of(failed.value).startswith("[UNRESOLVED_COLUMN")
    assert "\n" not in message_of(failed.value)


TRACE = """\
[STREAM_FAILED] Query terminated: Job aborted due to stage failure: Task 0 failed 1 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 12, in main
    process()
logqueue.errors.TopicNotFound: there is no topic 'x'

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:99)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace: SQLSTATE: XXKST
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TRACE, "there is no topic 'x'"),
        (TRACE.replace("logqueue.errors.TopicNotFound", "pyarrow.lib.ArrowInvalid"),
         "ArrowInvalid: there is no topic 'x'"),
        (TRACE.replace("logqueue.errors.TopicNotFound", "logqueue.pipeline.errors.PipelineError"),
         "there is no topic 'x'"),
        ("org.apache.spark.SparkException: not there\n\tat a.b(C.scala:1)",
         "SparkException: not there"),
        ("", "ValueError"),
        ("x" * 700, "x" * 599 + "…"),
    ],
)  # fmt: skip
def test_what_is_told_of_a_failure(text: str, line: str) -> None:
    assert message_of(ValueError(text)) == line


def test_what_can_not_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match="not both"):
        session.open_session("local[1]", "sc://localhost:1")
    with pytest.raises(PipelineError, match="is a wheel"):
        session.open_session("spark://host:7077", conf={"spark.submit.pyFiles": "a.zip,b.whl"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"pip install 'logqueue\[spark\]'"):
        session.require_packages()


def test_settings_for_little_input_leave_what_is_given() -> None:
    made = session.for_small_input(
        {"spark.sql.shuffle.partitions": "7", "spark.driver.extraJavaOptions": "-Dmine=1"}
    )
    assert made["spark.sql.shuffle.partitions"] == "7"
    assert made["spark.driver.extraJavaOptions"].endswith(" -XX:+UseSerialGC -Dmine=1")


@pytest.mark.parametrize(
    ("given", "environment", "chosen"),
    [
        ({}, {}, [session.COLLECTOR]),
        ({session.JAVA_OPTIONS: "-Dmine=1 -XX:+UseGCOverheadLimit"}, {}, [session.COLLECTOR]),
        ({session.JAVA_OPTIONS: "-Dmine=1 -XX:+UseG1GC"}, {}, []),
        (session.for_small_input({}), {}, []),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}, []),
    ],
)
def test_one_garbage_collector_is_chosen(
    given: dict[str, str], environment: dict[str, str], chosen: list[str]
) -> None:
    assert session.collector(given, environment) == chosen


def test_what_killed_processes_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_held", {})
    held, young = scratch.folder(), tmp_path / f"{scratch.PREFIX}young"
    left = tmp_path / f"{scratch.PREFIX}left"
    for folder in (young, left):
        folder.mkdir()
        (folder / scratch.LOCK).touch()
    for folder in (left, held):
        os.utime(folder, (0, 0))
    scratch.sweep()
    assert set(tmp_path.iterdir()) == {held, young}
    scratch.remove()
    assert set(tmp_path.iterdir()) == {young}


def test_importing_it_imports_neither_spark_nor_arrow() -> None:
    ask = (
        "import sys\n"
        "from logqueue.pipeline.engines.spark.session import doctor, packing, session\n"
        "sys.exit(', '.join({'pyspark', 'pyarrow', 'grpc'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_doctor_finds_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {finding.name: finding for finding in doctor.examine()}
    assert {"java", "python", "pyspark", "pyarrow", "pandas", "formats", "loopback"} <= set(found)
    assert doctor.is_fit(list(found.values()))
    versions = {"pyspark": "3.5.1", "pyarrow": None, "pandas": "3.1.0", "grpcio": None}
    monkeypatch.setattr(doctor, "version_of", versions.get)

    def none() -> java.Java:
        raise PipelineError("install Java")

    monkeypatch.setattr(java, "find", none)
    worse = {finding.name: finding for finding in doctor.examine()}
    assert not doctor.is_fit(list(worse.values()))
    states = {name: worse[name].state for name in ("java", "pyspark", "pyarrow", "pandas")}
    assert states == {
        "java": "missing",
        "pyspark": "missing",
        "pyarrow": "missing",
        "pandas": "note",
    }
    assert worse["pyspark"].hint.startswith("needs 4.2 or newer and below 4.4")
    # DuckDB by itself will do.
    versions |= {"duckdb": "2.0.0", "pyarrow": "26.0.1", "numpy": "2.4.6"}
    enough = {finding.name: finding for finding in doctor.examine()}
    assert doctor.is_fit(list(enough.values()))
    engines = ("engine duckdb", "engine spark", "java")
    assert [enough[name].state for name in engines] == ["ok", "note", "note"]
    assert all(finding.hint for finding in worse.values() if finding.state != "ok")
