"""The Makefile: what it lists, and what it says where there is no Python that will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT, make_targets, page

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

TOOLS = ("make", "sh", "awk", "echo", "head", "cat")


def make(folder: Path, *arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    """Run make in a folder with nothing but this search path."""
    program = shutil.which("make")
    assert program is not None
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        env={"PATH": path, "LC_ALL": "C"},
    )


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with only the build files, and one with only the plainest tools."""
    folder, tools = tmp_path / "with a blank", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return folder, tools


def fake_program(tools: Path, name: str, script: str) -> None:
    """Put a program of this name on the search path."""
    program = tools / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_bare_make_lists_every_target(bare: tuple[Path, Path]) -> None:
    folder, tools = bare
    listed = make(folder, path=str(tools))
    assert listed.returncode == 0
    shown = {line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")}
    assert shown == make_targets() - {"environment"}
    assert {"setup", "demo", "test", "check", "serve", "bench", "lock", "clean"} <= shown


def test_without_python_it_says_what_it_tried(bare: tuple[Path, Path]) -> None:
    folder, tools = bare
    fake_program(tools, "python3", 'echo "is Python 3.9" >&2; exit 1')
    fake_program(tools, "python3.12", "exit 1")
    failed = make(folder, "setup", "PYTHON=/nowhere/python", path=str(tools))
    assert failed.returncode != 0
    for line in (
        "setup: needs Python 3.11 or newer, and found none that will do:",
        "  /nowhere/python is not installed",
        "  python3 is Python 3.9",
        "  python3.12 does not run",
        "  python3.11 is not installed",
        "setup: install one, or name it: make setup PYTHON=/path/to/python3",
    ):
        assert line in failed.stderr.splitlines()
    assert not (folder / ".venv").exists()


def test_everything_runs_in_the_environment_of_the_checkout() -> None:
    recipes = [line for line in page("Makefile").splitlines() if line.startswith("\t")]
    modules = [line for line in recipes if re.search(r" -m [a-z]", line)]
    assert modules
    for line in modules:
        assert re.search(r'(\$\(PY\)|\$\(LOCK_VENV\)/bin/python|"\$\$found") -m ', line), line


def test_the_line_runs_make_test() -> None:
    script = page(".ci/run")
    assert os.access(ROOT / ".ci/run", os.X_OK), ".ci/run must be executable"
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in script
    assert script.rstrip().endswith("exec make test")


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_line_never_skips_a_browser_that_is_there(tmp_path: Path, has_browser: bool) -> None:
    """With programs of our own on the search path, and make that says what it was given."""
    folder, tools = tmp_path / "tree", tmp_path / "tools"
    (folder / ".ci").mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    for name in ("bash", "sh", "dirname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    fake_program(tools, "id", "echo 1000")
    fake_program(tools, "make", 'echo "required: ${LOGQUEUE_REQUIRE_BROWSER:-no}"')
    if has_browser:
        fake_program(tools, "chromium", "true")
    ran = subprocess.run(
        [str(folder / ".ci/run")],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"required: {1 if has_browser else 'no'}\n"
    assert ("are skipped" in ran.stderr) is not has_browser


def test_bytecode_is_kept_whatever_the_environment_says() -> None:
    """Hundreds of processes start in a run; without it each compiles all that it imports."""
    assert "\nexport PYTHONDONTWRITEBYTECODE :=\n" in page("Makefile")
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ and not sys.dont_write_bytecode


def test_a_dry_run_runs_nothing(bare: tuple[Path, Path]) -> None:
    """Make runs a line that calls make again even then, with all else that is in it."""
    folder, tools = bare
    for name in ("python3", "go"):
        fake_program(tools, name, f'echo ran > "{tools}/ran"')
    for target in ("test-s3", "test", "check", "bench"):
        make(folder, "-n", target, "PY=python3", "GO=go", path=str(tools))
        assert not (tools / "ran").exists(), target
