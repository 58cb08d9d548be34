"""The code in docs/workers.md: it runs, and its tests pass. Its types: test_page_code.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue.testing import MemoryServer
from logqueue.worker import load_app
from tests.house import ROOT, page

BLOCKS = re.findall(r"^```python\n(.*?)^```", page("docs/workers.md"), re.MULTILINE | re.DOTALL)


def name(block: str, number: int) -> str:
    """The file that a block says it is, or one of its own."""
    said = re.match(r"# (\w+\.py)\n", block)
    if said:
        return said[1]
    return f"test_page_{number}.py" if "def test_" in block else f"page_{number}.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every block as a file."""
    for number, block in enumerate(BLOCKS):
        (tmp_path / name(block, number)).write_text(block)
    return tmp_path


def test_the_tests_on_the_page_pass(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "."],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_every_block_runs_and_the_first_app_works(
    folder: Path,
    logqueue_memory: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    for path in folder.glob("*.py"):
        compiled = compile(path.read_text(), str(path), "exec")
        exec(compiled, {"__name__": f"page_block_{path.stem}"})
    app = load_app("shop:app")
    logqueue_memory.attach(app)
    sys.modules["shop"].upload("a.png")
    logqueue_memory.drain(app)
    assert capsys.readouterr().out == "a.png at 256\n"
