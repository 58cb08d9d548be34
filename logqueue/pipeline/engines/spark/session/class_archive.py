"""An archive of Spark's loaded classes, with which Java starts in half the time.

Owns: where it is kept, for which Java and pyspark it holds, and making it. Must not know: any job.

Java writes such an archive when it ends (AppCDS). It fits exactly one Java and set of jar files;
its name says which, and Java itself ignores one that does not fit.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from logqueue.pipeline.engines.spark.session.java import Java
from logqueue.pipeline.errors import PipelineError

TRAINING = "logqueue.pipeline.engines.spark.session.class_training"
"""The module that runs Spark once, so that Java sees the classes to keep."""

SWITCH = "LOGQUEUE_CLASS_ARCHIVE"
"""Variable of the environment: `off` neither uses nor makes an archive."""

MAKING_S = 300.0
"""Seconds that the making of an archive may take."""

FREE_BYTES_MIN = 1 << 30
"""What must be free on the disk of the cache before an archive (200 MB) is made."""

KEPT = 3
"""Archives that are kept, those used last."""


def is_wanted() -> bool:
    """Whether archives are used and made."""
    return os.environ.get(SWITCH, "").lower() not in ("off", "0", "no", "false")


def options(java: Java, cache: Path) -> list[str]:
    """Java's flags for using the archive; none where there is none."""
    if not is_wanted():
        return []
    kept = path(java, cache)
    if not kept.is_file():
        return []
    with contextlib.suppress(OSError):
        os.utime(kept)
    parts = [str(part) for part in (ground_of(kept), kept) if part.is_file()]
    # One that does not fit after all is not an archive: not a word of it, and on without.
    return [f"-XX:SharedArchiveFile={os.pathsep.join(parts)}", "-Xshare:auto", "-Xlog:disable"]


def path(java: Java, cache: Path) -> Path:
    """Where the archive for this Java and the installed pyspark is, once it is made."""
    marks = [java.version_line, str(java.home)]
    for part in (java.program, java.home / "lib" / "modules", *sorted(_jars().glob("spark-*.jar"))):
        with contextlib.suppress(OSError):
            facts = part.stat()
            marks.append(f"{part} {facts.st_size} {facts.st_mtime_ns}")
    mark = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
    return cache / f"spark-classes-{java.version}-{mark}.jsa"


def make(java: Java, cache: Path) -> Path | None:
    """Make the archive, unless it is there. Takes about 15 s; one process makes it, others wait.

    Returns:
        Where it is; None where it cannot be made: no room, or a cache that cannot be written to.
    """
    kept = path(java, cache)
    if kept.is_file():
        return kept
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(cache).free < FREE_BYTES_MIN:
            return None
        with (cache / "spark-classes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.is_file():
                _make(java, kept)
                _forget_older(cache)
    except (OSError, subprocess.SubprocessError):
        return None
    return kept if kept.is_file() else None


def make_later(java: Java, cache: Path) -> None:
    """Make the archive in a process of its own that outlives this one, unless it is there."""
    if not is_wanted() or path(java, cache).is_file():
        return
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", TRAINING, "make"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _make(java: Java, kept: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".spark-classes-", dir=kept.parent) as folder:
        draft = Path(folder) / kept.name
        if not list((java.home / "lib").glob("*/classes.jsa")):
            command = [
                str(java.program),
                "-Xshare:dump",
                f"-XX:SharedArchiveFile={ground_of(draft)}",
            ]
            _run([*command, "-Xlog:disable"])
            # The second archive remembers the path of the first.
            ground_of(draft).replace(ground_of(kept))
        environment = {**os.environ, "LOGQUEUE_JAVA_HOME": str(java.home), SWITCH: "off"}
        _run(
            [
                sys.executable,
                "-m",
                TRAINING,
                str(draft),
            ],
            environment,
        )
        draft.replace(kept)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=MAKING_S,
        check=True,
    )


def _forget_older(cache: Path) -> None:
    archives = [found for found in cache.glob("spark-classes-*.jsa") if ".ground" not in found.name]
    for old in sorted(archives, key=lambda found: found.stat().st_mtime, reverse=True)[KEPT:]:
        old.unlink(missing_ok=True)
        ground_of(old).unlink(missing_ok=True)


def ground_of(archive: Path) -> Path:
    """The archive of Java's own classes, for a Java that came without one."""
    return archive.with_suffix(".ground.jsa")


def _jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PipelineError("pyspark is not installed: pip install 'logqueue[spark]'")
    return Path(spec.origin).parent / "jars"
