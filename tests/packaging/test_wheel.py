"""The wheel that the tree builds: our packages, their types, the command, and Spark's way in."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house import ROOT, project_files

REGISTRATION = "logqueue/spark/registration/"
"""Holds packages that are at the top of the wheel, where Spark looks for them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """A wheel built from a copy of the tree, without fetching anything."""
    tree = tmp_path_factory.mktemp("tree")
    built = tmp_path_factory.mktemp("built")
    for name in project_files():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(built), str(tree)],
        cwd=built,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deprecated" not in (done.stdout + done.stderr).lower()
    (path,) = built.glob("logqueue-*.whl")
    return zipfile.Path(path)


DATA = ("/pages/ui/", "/vendored/files/", "/page/assets/")
"""Folders with files that are not Python."""


def names(wheel: zipfile.Path) -> set[str]:
    """Every file in the wheel."""
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


def metadata(wheel: zipfile.Path, name: str) -> str:
    """A file of the wheel's own description."""
    (folder,) = [entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info")]
    return folder.joinpath(name).read_text(encoding="utf-8")


def test_it_holds_every_module_and_nothing_else(wheel: zipfile.Path) -> None:
    expected = {
        path.removeprefix(REGISTRATION)
        for path in project_files()
        if path.startswith(("wal/", "logqueue/"))
        and (path.endswith((".py", "/py.typed")) or any(part in path for part in DATA))
    }
    assert {"wal/py.typed", "logqueue/py.typed", "logqueue/errors.py"} <= expected
    held = {name for name in names(wheel) if ".dist-info/" not in name}
    assert sorted(held) == sorted(expected)


def test_it_installs_the_command(wheel: zipfile.Path) -> None:
    entry_points = configparser.ConfigParser()
    entry_points.read_string(metadata(wheel, "entry_points.txt"))
    assert entry_points["console_scripts"]["logqueue"] == "logqueue.cli:main"
    assert "logqueue/cli/__init__.py" in names(wheel)


def test_it_says_what_it_is(wheel: zipfile.Path) -> None:
    text = metadata(wheel, "METADATA")
    for line in ("Name: logqueue", "License-Expression: MIT", "Requires-Python: >=3.11"):
        assert f"\n{line}\n" in text
    assert any(Path(name).name == "LICENSE" for name in names(wheel))


def test_spark_finds_both_formats_in_it(wheel: zipfile.Path) -> None:
    top = {name.partition("/")[0] for name in names(wheel)}
    assert {name for name in top if name.startswith("pyspark_")} == {
        "pyspark_logqueue",
        "pyspark_logqueue_wal",
    }
