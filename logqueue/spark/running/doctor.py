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
from dataclasses import dataclass
from typing import Literal

from logqueue.spark.errors import PipelineError
from logqueue.spark.running import class_archive, java, session

State = Literal["ok", "note", "missing"]

PYTHON_MIN = (3, 11)
PYSPARK_MIN, PYSPARK_BELOW = (4, 2), (4, 4)
PYARROW_MIN = (18,)
NUMPY_MIN = (1, 26)
PANDAS_BELOW = (3,)
TEMP_FREE_MIN = 2 << 30


@dataclass(frozen=True)
class Finding:
    """What was found of one thing.

    Attributes:
        state: `missing` keeps the pipeline from running; a `note` does not.
        hint: What to do; empty where nothing need be done.
    """

    name: str
    state: State
    detail: str
    hint: str = ""


def examine() -> list[Finding]:
    """Look at everything."""
    return [finding for look in LOOKS for finding in look()]


def is_fit(findings: list[Finding]) -> bool:
    """Whether nothing essential is missing."""
    return all(finding.state != "missing" for finding in findings)


def _java() -> Iterator[Finding]:
    try:
        found = java.find()
    except PipelineError as error:
        yield Finding("java", "missing", "none that will do", error.message)
        return
    yield Finding("java", "ok", f"{found.said}, from {found.source}: {found.home}")
    yield _archive(found)


def _archive(found: java.Java) -> Finding:
    name = "class archive"
    if not class_archive.is_wanted():
        return Finding(
            name, "note", f"turned off by {class_archive.SWITCH}", "sessions start slower"
        )
    try:
        kept = class_archive.path(found, java.cache_directory())
    except PipelineError as error:
        return Finding(name, "note", "none", error.message)
    if kept.is_file():
        return Finding(name, "ok", f"{kept} ({kept.stat().st_size >> 20} MiB)")
    return Finding(name, "note", "none yet", "the first action makes it, for quicker starts later")


def _python() -> Iterator[Finding]:
    said = f"{platform.python_version()}: {sys.executable}"
    if sys.version_info[:2] >= PYTHON_MIN:
        yield Finding("python", "ok", said)
    else:
        yield Finding("python", "missing", said, "use Python 3.11 or newer")


def _packages() -> Iterator[Finding]:
    yield _package("pyspark", PYSPARK_MIN, PYSPARK_BELOW)
    yield _package("pyarrow", PYARROW_MIN, None)
    yield _package("numpy", NUMPY_MIN, None)
    pandas = version_of("pandas")
    if pandas is None:
        yield Finding("pandas", "ok", "not installed, and not needed")
    elif numbers(pandas) < PANDAS_BELOW:
        yield Finding("pandas", "ok", pandas)
    else:
        hint = "pyspark does not work with it everywhere: pip install 'pandas<3'"
        yield Finding("pandas", "note", pandas, hint)
    connect = version_of("grpcio")
    if connect is None:
        hint = "only --remote needs it: pip install 'logqueue[spark-connect]'"
        yield Finding("spark connect", "note", "not installed", hint)
    else:
        yield Finding("spark connect", "ok", f"grpcio {connect}")


def _package(name: str, least: tuple[int, ...], below: tuple[int, ...] | None) -> Finding:
    version = version_of(name)
    install = "pip install 'logqueue[spark]'"
    if version is None:
        return Finding(name, "missing", "not installed", install)
    if numbers(version) < least or (below is not None and numbers(version) >= below):
        upto = f" and below {_dotted(below)}" if below else ""
        return Finding(
            name, "missing", version, f"needs {_dotted(least)} or newer{upto}: {install}"
        )
    return Finding(name, "ok", version)


def _formats() -> Iterator[Finding]:
    missing = [
        name
        for name in ("pyspark_logqueue", "pyspark_logqueue_wal")
        if not (session.REGISTRATION / name).is_dir() and importlib.util.find_spec(name) is None
    ]
    if missing:
        hint = "install logqueue again: its wheel holds them"
        yield Finding("formats", "missing", f"no package {', '.join(missing)}", hint)
    else:
        yield Finding("formats", "ok", "logqueue, logqueue-wal")


def _loopback() -> Iterator[Finding]:
    try:
        with socket.create_server((session.LOOPBACK, 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection((session.LOOPBACK, port), timeout=5):
                pass
    except OSError as error:
        hint = "Spark and its Python processes talk over it; allow ports on 127.0.0.1"
        yield Finding("loopback", "missing", str(error), hint)
    else:
        yield Finding("loopback", "ok", f"ports can be opened and reached on {session.LOOPBACK}")


def _temp_space() -> Iterator[Finding]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    said = f"{free / (1 << 30):.1f} GiB free in {folder}"
    if free >= TEMP_FREE_MIN:
        yield Finding("temp space", "ok", said)
    else:
        hint = "sorts spill there; free some, or name another directory with TMPDIR"
        yield Finding("temp space", "note", said, hint)


LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
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
