"""Code on pages: every Python block is what a strict type checker likes, what it sends is answered.

That it runs, and does what the page says, is tested page by page: README in test_readme.py,
docs/client.md in client/test_page.py, docs/workers.md in worker/test_page.py, docs/pipeline.md in
spark/test_docs.py, docs/coming-from.md in test_coming_from.py, examples in examples/. Commands of
all pages are looked at by test_house_pages.py.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from mypy import api

from tests import readme
from tests.house import PAGES, ROOT, broken, page
from tests.http.conftest import FreshServer, fresh_server

__all__ = ["fresh_server"]

IN_A_ROW = ("docs/client.md", "docs/pipeline.md")
"""Pages that are followed from top to bottom; on others each block stands alone."""

RUN = frozenset(
    {"README.md", "docs/client.md", "docs/workers.md", "docs/pipeline.md", "docs/coming-from.md"}
)
"""Pages whose Python is run by a test."""

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def modules(path: str) -> dict[str, str]:
    """The Python of a page, as modules by name."""
    blocks: list[str] = _PYTHON.findall(page(path))
    stem = re.sub(r"\W", "_", path.removesuffix(".md")).lower()
    if path in IN_A_ROW:
        return {stem: "\n".join(blocks)} if blocks else {}
    found = {}
    for number, block in enumerate(blocks):
        named = re.match(r"# (\w+)\.py\n", block)
        found[named[1] if named else f"{stem}_{number}"] = block
    return found


def test_every_page_with_python_is_run() -> None:
    assert {path for path in PAGES if modules(path)} == RUN


def test_a_type_checker_likes_all_of_it(tmp_path: Path) -> None:
    """In one run, with what `make check` has cached."""
    for path in PAGES:
        for name, code in modules(path).items():
            place = tmp_path / f"{name}.py"
            assert not place.exists(), f"two pages have a {place.name}"
            place.write_text(code)
    examples = sorted({str(path.parent) for path in (ROOT / "examples").rglob("*.py")})
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    out, err, status = api.run([*config, str(tmp_path), *examples])
    wrong = [out + err] if status != 0 else []
    broken("Python on pages and in examples passes mypy --strict", wrong)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page speaks curl")
def test_what_the_protocol_page_sends_is_answered_as_it_says(fresh_server: FreshServer) -> None:
    address = fresh_server().address
    for name in ("orders", "sales", "reports"):
        url = f"http://{address[0]}:{address[1]}/v0/topics/{name}"
        assert httpx.put(url, json={}, trust_env=False, verify=False).status_code == 201
    commands = [
        command
        for block in readme.shell_blocks(page("docs/protocol.md"))
        for command in block.commands()
    ]
    assert len(commands) >= 3
    for command in commands:
        words = shlex.split(command.replace("localhost:4000", f"{address[0]}:{address[1]}"))
        assert words[0] == "curl", command
        ran = subprocess.run(
            [*words, "--silent", "--show-error", "--fail-with-body"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
