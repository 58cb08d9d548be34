"""Whether this machine can run the pipeline, one finding per line.

Owns: what is looked at, and the hint for each thing that is missing. Must not know: the command
line. Nothing is started but `java -version`; nothing is changed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from logqueue.pipeline.engines.spark.session import class_archive, java, session
from logqueue.pipeline.errors import PipelineError

State = Literal["ok", "note", "missing"]

PYTHON_MIN = (3, 11)
PYSPARK_MIN, PYSPARK_BELOW = (4, 2), (4, 4)
PYARROW_MIN = (18,)
DUCKDB_MIN = (1, 3)
NUMPY_MIN = (1, 26)
PANDAS_BELOW = (3,)
TEMP_FREE_MIN = 2 << 30

SPARK_ONLY = ("java", "pyspark", "formats", "loopback")
DUCKDB_ONLY = ("duckdb",)
"""What only one of the engines needs."""


@dataclass(frozen=True)
class DoctorFinding:
    """What was found of one thing.

    Attributes:
        state: `missing` keeps the pipeline from running; a `note` does not.
        hint: What to do; empty where nothing need be done.
    """

    name: str
    state: State
    detail: str
    hint: str = ""


def examine() -> list[DoctorFinding]:
    """Look at everything: first which engines there are, then each part. What one engine lacks is
    a note where the other one works."""
    found = [finding for look in LOOKS for finding in look()]
    lacking = {finding.name for finding in found if finding.state == "missing"}
    has_duckdb = not lacking - set(SPARK_ONLY)
    has_spark = not lacking - set(DUCKDB_ONLY)
    if has_duckdb or has_spark:
        spare = (*SPARK_ONLY,) if has_duckdb else (*DUCKDB_ONLY,)
        found = [
            replace(finding, state="note")
            if finding.state == "missing" and finding.name in spare
            else finding
            for finding in found
        ]
    return [*_engines(has_duckdb, has_spark), *found]


def _engines(has_duckdb: bool, has_spark: bool) -> Iterator[DoctorFinding]:
    other: State = "note" if has_duckdb or has_spark else "missing"
    if has_duckdb:
        yield DoctorFinding("engine duckdb", "ok", "lifecycle, report, audit, sql, simulate")
    else:
        yield DoctorFinding("engine duckdb", other, "not available", "see below")
    if has_spark:
        yield DoctorFinding("engine spark", "ok", "all actions, here and on clusters")
    else:
        hint = "only large inputs, clusters, backfill and redrive need it; see below"
        yield DoctorFinding("engine spark", other, "not available", hint)


def is_fit(findings: list[DoctorFinding]) -> bool:
    """Whether nothing essential is missing."""
    return all(finding.state != "missing" for finding in findings)


def _java() -> Iterator[DoctorFinding]:
    try:
        found = java.find()
    except PipelineError as error:
        yield DoctorFinding("java", "missing", "none that will do", error.message)
        return
    yield DoctorFinding("java", "ok", f"{found.version_line}, from {found.source}: {found.home}")
    yield _archive(found)


def _archive(found: java.Java) -> DoctorFinding:
    name = "class archive"
    if not class_archive.is_wanted():
        return DoctorFinding(
            name, "note", f"turned off by {class_archive.SWITCH}", "sessions start slower"
        )
    try:
        kept = class_archive.path(found, java.cache_directory())
    except PipelineError as error:
        return DoctorFinding(name, "note", "none", error.message)
    if kept.is_file():
        return DoctorFinding(name, "ok", f"{kept} ({kept.stat().st_size >> 20} MiB)")
    return DoctorFinding(
        name, "note", "none yet", "the first action makes it, for quicker starts later"
    )


def _python() -> Iterator[DoctorFinding]:
    found_text = f"{platform.python_version()}: {sys.executable}"
    if sys.version_info[:2] >= PYTHON_MIN:
        yield DoctorFinding("python", "ok", found_text)
    else:
        yield DoctorFinding("python", "missing", found_text, "use Python 3.11 or newer")


def _packages() -> Iterator[DoctorFinding]:
    yield _package("duckdb", DUCKDB_MIN, None, "reports")
    yield _package("pyspark", PYSPARK_MIN, PYSPARK_BELOW, "spark")
    yield _package("pyarrow", PYARROW_MIN, None, "reports")
    yield _package("numpy", NUMPY_MIN, None, "reports")
    pandas = version_of("pandas")
    if pandas is None:
        yield DoctorFinding("pandas", "ok", "not installed, and not needed")
    elif numbers(pandas) < PANDAS_BELOW:
        yield DoctorFinding("pandas", "ok", pandas)
    else:
        hint = "pyspark does not work with it everywhere: pip install 'pandas<3'"
        yield DoctorFinding("pandas", "note", pandas, hint)
    connect = version_of("grpcio")
    if connect is None:
        hint = "only --remote needs it: pip install 'logqueue[spark-connect]'"
        yield DoctorFinding("spark connect", "note", "not installed", hint)
    else:
        yield DoctorFinding("spark connect", "ok", f"grpcio {connect}")


def _package(
    name: str, least: tuple[int, ...], below: tuple[int, ...] | None, extra: str
) -> DoctorFinding:
    version = version_of(name)
    install = f"pip install 'logqueue[{extra}]'"
    if version is None:
        return DoctorFinding(name, "missing", "not installed", install)
    if numbers(version) < least or (below is not None and numbers(version) >= below):
        upto = f" and below {_dotted(below)}" if below else ""
        return DoctorFinding(
            name, "missing", version, f"needs {_dotted(least)} or newer{upto}: {install}"
        )
    return DoctorFinding(name, "ok", version)


def _formats() -> Iterator[DoctorFinding]:
    missing = [
        name
        for name in ("pyspark_logqueue", "pyspark_logqueue_wal")
        if not (session.REGISTRATION / name).is_dir() and importlib.util.find_spec(name) is None
    ]
    if missing:
        hint = "install logqueue again: its wheel holds them"
        yield DoctorFinding("formats", "missing", f"no package {', '.join(missing)}", hint)
    else:
        yield DoctorFinding("formats", "ok", "logqueue, logqueue-wal")


def _loopback() -> Iterator[DoctorFinding]:
    try:
        with socket.create_server((session.LOOPBACK, 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection((session.LOOPBACK, port), timeout=5):
                pass
    except OSError as error:
        hint = "Spark and its Python processes talk over it; allow ports on 127.0.0.1"
        yield DoctorFinding("loopback", "missing", str(error), hint)
    else:
        yield DoctorFinding(
            "loopback", "ok", f"ports can be opened and reached on {session.LOOPBACK}"
        )


def _temp_space() -> Iterator[DoctorFinding]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    found_text = f"{free / (1 << 30):.1f} GiB free in {folder}"
    if free >= TEMP_FREE_MIN:
        yield DoctorFinding("temp space", "ok", found_text)
    else:
        hint = "sorts spill there; free some, or name another directory with TMPDIR"
        yield DoctorFinding("temp space", "note", found_text, hint)


LOOKS: tuple[Callable[[], Iterator[DoctorFinding]], ...] = (
    _java,
    _python,
    _packages,
    _formats,
    _loopback,
    _temp_space,
)


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
