"""Tables published as versions: killed at any step, two at once, readers in between."""

from __future__ import annotations

import json
import os
import pickle
import sys
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import publishing
from logqueue.pipeline.lifecycle.publishing import Published, TableFile, opened_target, table_files
from logqueue.pipeline.lifecycle.span import Span, publish_tables
from logqueue.pipeline.storage.opening import open_tree
from tests.effort import IS_THOROUGH

DAYS = [date(2026, 1, day) for day in (1, 2, 3)]
TABLES = ("jobs", "attempts")


def rows(day: date, mark: int) -> pa.Table:
    return pa.table({"seq": [1, 2], "mark": [mark, mark]})


def written(target: publishing.Target, mark: int, days: list[date]) -> list[TableFile]:
    return [
        pickle.loads(pickle.dumps(target.staging)).write(table, day, rows(day, mark))
        for table in TABLES
        for day in days
    ]


def run(to: str, mark: int, days: list[date] | None = None) -> Published:
    """A run that writes some days and keeps the others."""
    with opened_target(to) as target:
        files = written(target, mark, DAYS if days is None else days)
        before = [] if target.before is None or days is None else target.before.files
        keep = [file for file in before if file.day not in (days or ())]
        return target.publish(files, tables=TABLES, keep=keep, facts={"mark": mark})


def ours(to: str, table: str = "jobs") -> dict[str, set[int]]:
    """The marks of each day as our readers see them."""
    tree = open_tree(to)
    version = publishing.published(tree)
    assert version is not None
    found: dict[str, set[int]] = {}
    for file in version.of(table):
        read = pq.ParquetFile(tree.source(file.path)).read()
        assert read.num_rows == file.rows or file.rows == -1
        found.setdefault(str(file.day), set()).update(read["mark"].to_pylist())
    return found


def plain(to: str, table: str = "jobs") -> dict[str, set[int]]:
    """The same for a reader that knows of no manifest."""
    read = pq.read_table(os.path.join(to, table))
    found: dict[str, set[int]] = {}
    for row in read.to_pylist():
        found.setdefault(row["date"], set()).add(row["mark"])
    assert read.num_rows == 2 * len(found)
    return found


def of(mark: int, days: list[date] = DAYS) -> dict[str, set[int]]:
    return {str(day): {mark} for day in days}


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "to")
    return f"memory://{tmp_path.name}-{os.getpid()}/to"


def test_versions_follow_each_other_and_kept_days_stay(place: str) -> None:
    run(place, 1)
    assert ours(place) == of(1)
    version = run(place, 2, [DAYS[1]])
    assert (version.version, version.facts) == (2, {"mark": 2})
    assert ours(place) == {**of(1), str(DAYS[1]): {2}} == ours(place, "attempts")
    # What our readers go by is what any reader may read.
    assert len(table_files(place, "jobs")) == 3
    if not place.startswith("memory:"):
        assert plain(place) == ours(place)
        assert plain(place, "attempts") == ours(place, "attempts")


def test_two_at_once_lose_nothing(place: str) -> None:
    run(place, 1)
    with opened_target(place) as target:
        with pytest.raises(PipelineError, match=r"process \d+ on .* is working on .*publish"):
            run(place, 2)
        # Even if the lock fails, as it may on a mounted directory, the later one changes nothing.
        other = publishing.Target(target.tree)
        target.publish(written(target, 3, DAYS), tables=TABLES)
        with pytest.raises(PipelineError, match="another run has published"):
            other.publish(written(other, 2, DAYS), tables=TABLES)
    assert ours(place) == of(3)


def test_every_file_is_looked_at_before_it_counts(place: str) -> None:
    run(place, 1)
    with opened_target(place) as target:
        files = written(target, 2, DAYS)
        target.tree.remove([files[2].path])
        with pytest.raises(PipelineError, match="1 of 6 files that tasks have written are not in"):
            target.publish(files, tables=TABLES)
        files = written(target, 2, DAYS)
        target.tree.replace(files[2].path, b"PAR1 but short")
        with pytest.raises(PipelineError, match="has 14 bytes and was written with"):
            target.publish(files, tables=TABLES)
    assert ours(place) == of(1)


def test_a_place_that_a_task_cannot_write_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    staging = publishing.Staging(open_tree(str(tmp_path / "file" / "to")), "run")
    with pytest.raises(PipelineError, match=r"cannot be written on .*: give a directory that the"):
        staging.write("jobs", DAYS[0], rows(DAYS[0], 1))


def test_files_of_a_report_appear_together(place: str) -> None:
    """Others stay; a run that fails changes nothing."""
    tree = open_tree(place)
    for mark, names in ((b"1", "abc"), (b"2", "bc")):
        with publishing.published_together(place) as space:
            for name in names:
                space.tree.replace(f"{name}.csv", mark)
                with pytest.raises(FileNotFoundError) if mark == b"1" else nullcontext():
                    assert tree.read(f"{name}.csv") == b"1"
            path = space.published_path(space.tree.path("b.csv"))
    assert path == tree.path("b.csv")
    assert [tree.read(f"{name}.csv") for name in "abc"] == [b"1", b"2", b"2"]
    with pytest.raises(ZeroDivisionError), publishing.published_together(place) as space:
        space.tree.replace("a.csv", b"3")
        raise ZeroDivisionError
    assert tree.read("a.csv") == b"1"
    version = publishing.published(tree)
    assert version is not None and [file.name for file in version.files] == [
        "a.csv",
        "b.csv",
        "c.csv",
    ]


def test_a_table_is_one_file_or_a_directory_of_files(place: str) -> None:
    for names in (["x.csv/1", "x.csv/2"], ["x.csv"], ["x.csv/3"]):
        with publishing.published_together(place) as space:
            for name in names:
                space.tree.replace(name, b"1")
        version = publishing.published(open_tree(place))
        assert version is not None and [file.name for file in version.files] == names
        shown = {file.name for file in open_tree(place).files() if file.name.startswith("x")}
        assert shown == (set(names) if place.startswith("memory:") else set())


def test_files_from_before_there_were_versions_are_replaced(tmp_path: Path) -> None:
    for name in ("a.csv", "other.csv"):
        (tmp_path / name).write_text("0")
    with publishing.published_together(str(tmp_path)) as space:
        space.tree.replace("a.csv", b"1")
    assert [(tmp_path / name).read_text() for name in ("a.csv", "other.csv")] == ["1", "0"]


def test_jobs_that_publish_at_one_place_keep_what_others_did(tmp_path: Path) -> None:
    """Tables of jobs, reports on them, tables again."""
    to = str(tmp_path)
    span = Span(1, 2, ())
    for mark in (1, 2):
        with opened_target(to) as target:
            publish_tables(target, span, written(target, mark, DAYS))
        with publishing.published_together(to) as space:
            space.tree.replace(f"{mark}.csv", b"1")
        assert ours(to) == plain(to) == of(mark)
        assert Span.read(to) == span
    with opened_target(to) as target:
        publish_tables(target, span, written(target, 3, DAYS[:1]))
    assert ours(to) == plain(to) == of(3, DAYS[:1])
    assert [(tmp_path / f"{mark}.csv").read_text() for mark in (1, 2)] == ["1", "1"]
    run(to, 4)
    assert not list(tmp_path.glob("*.csv")), "what a version does not have is not shown"


STEPS = ("link", "mkdir", "rename", "replace", "rmdir", "symlink", "unlink")


def killed_at(step: int, to: str) -> bool:
    """Run in a child that ends hard before its n-th change of the disk; false if it got through."""
    child = os.fork()
    if not child:
        left = step

        def counted(call: Any) -> Any:
            def change(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                if not left:
                    os._exit(9)
                left -= 1
                return call(*arguments, **named)

            return change

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        publishing._exchanged = counted(publishing._exchanged)
        try:
            run(to, 2, DAYS[1:2])
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9


def legacy(to: Path) -> None:
    """A directory as it was written before there were versions."""
    for table in TABLES:
        for day in DAYS:
            folder = to / table / f"date={day}"
            folder.mkdir(parents=True)
            pq.write_table(rows(day, 1), folder / "part-00000.parquet")
    (to / "_range.json").write_text(json.dumps({"v": 1, "span": {"start": 1}}))


@pytest.mark.skipif(sys.platform != "linux", reason="directories are exchanged on Linux only")
@pytest.mark.parametrize("from_before", [False, True])
def test_a_kill_at_any_step_leaves_one_whole_version(tmp_path: Path, from_before: bool) -> None:
    before, after = of(1), {**of(1), str(DAYS[1]): {2}}
    step = 0
    seen = []
    while True:
        to = tmp_path / str(step)
        legacy(to) if from_before else run(str(to), 1)
        was_killed = killed_at(step, str(to))
        for table in TABLES:
            assert ours(str(to), table) in (before, after), step
            assert plain(str(to), table) in (before, after), step
        seen.append(ours(str(to)) == after)
        # The next run goes on from what counts, and leaves nothing of the one that was killed.
        run(str(to), 3, [DAYS[0]])
        expected = {**(after if seen[-1] else before), str(DAYS[0]): {3}}
        assert ours(str(to)) == plain(str(to)) == plain(str(to), "attempts") == expected
        assert not (to / "_staging").exists()
        if not was_killed:
            break
        # Every step in runs that take their time, in others the first and each third.
        step += 1 if IS_THOROUGH else 3
    assert (seen[0], seen[-1], seen) == (False, True, sorted(seen))


def test_a_directory_from_before_there_were_versions_is_read_and_taken_over(tmp_path: Path) -> None:
    legacy(tmp_path / "to")
    to = str(tmp_path / "to")
    version = publishing.published(open_tree(to))
    assert version is not None
    assert (version.version, version.facts["span"]) == (0, {"start": 1})
    assert ours(to) == plain(to) == of(1)
    run(to, 2, [DAYS[1]])
    assert ours(to) == plain(to) == {**of(1), str(DAYS[1]): {2}}


def test_a_reader_that_began_before_keeps_its_files_for_an_hour(place: str) -> None:
    tree = open_tree(place)
    run(place, 1)
    old = publishing.published(tree)
    assert old is not None
    run(place, 2)
    run(place, 3)
    assert all(tree.info(file.path) is not None for file in old.files)
    assert ours(place) == of(3)


def test_old_versions_go_when_they_were_superseded_for_an_hour(tmp_path: Path) -> None:
    to = str(tmp_path)
    run(to, 1)
    run(to, 2)
    for path in (tmp_path / "_manifest").iterdir():
        os.utime(path, ns=(0, 0))
    run(to, 3)
    kept = sorted(path.name[:10] for path in (tmp_path / "_versions").iterdir())
    assert kept == ["0000000002", "0000000003"]
    assert sorted(path.stem for path in (tmp_path / "_manifest").iterdir()) == kept
    assert ours(to) == plain(to) == of(3)


def test_a_table_without_rows_is_there(tmp_path: Path) -> None:
    with opened_target(str(tmp_path)) as target:
        target.publish([], tables=TABLES)
    assert (tmp_path / "jobs").is_dir()
    assert pq.read_table(tmp_path / "jobs").num_rows == 0


def test_nothing_published_and_a_later_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="holds no finished tables"):
        table_files(str(tmp_path), "jobs")
    run(str(tmp_path), 1)
    path = tmp_path / "_manifest" / "0000000001.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "v": 2}))
    with pytest.raises(PipelineError, match="later version: use a newer logqueue"):
        table_files(str(tmp_path), "jobs")
