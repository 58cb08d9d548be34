"""The wheel in new environments, with what a package index has: the client, and the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.http.process import environment

pytestmark = pytest.mark.slow

BASE_BYTES_MAX = 15 << 20
INDEX_S = 600.0


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command far from the checkout."""
    return subprocess.run(
        command,
        cwd=folder,
        env={k: v for k, v in environment({}).items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=INDEX_S,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel."""
    built = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = run(built, *pip, "--wheel-dir", str(built), str(ROOT))
    assert done.returncode == 0, done.stderr
    (path,) = built.glob("logqueue-*.whl")
    return path


def installed(folder: Path, wheel: Path, extra: str = "") -> Path:
    """A new environment with the wheel in it; skipped where no package index can be reached."""
    run(folder, sys.executable, "-m", "venv", "env")
    python = folder / "env" / "bin" / "python"
    done = run(folder, str(python), "-m", "pip", "install", "--quiet", f"{wheel}{extra}")
    if done.returncode != 0:
        pytest.skip(f"no package index: {done.stderr[-300:]}")
    return python


def test_the_base_is_small_and_speaks_to_a_server(wheel: Path, tmp_path: Path) -> None:
    python = installed(tmp_path, wheel)
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    taken = sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not path.relative_to(site).parts[0].startswith(tools)
    )
    assert taken < BASE_BYTES_MAX
    asked = run(tmp_path, str(python), "-c", "from logqueue import App, AsyncClient, Client")
    assert asked.returncode == 0, asked.stderr
    logqueue = str(python.with_name("logqueue"))
    refused = run(tmp_path, logqueue, "serve")
    assert refused.returncode == 1 and 'pip install "logqueue[server]"' in refused.stderr
    lost = run(tmp_path, logqueue, "--help")
    assert lost.returncode == 0


def test_the_server_serves(wheel: Path, tmp_path: Path) -> None:
    python = installed(tmp_path, wheel, "[server]")
    code = (
        "from pathlib import Path\nfrom logqueue import Client\n"
        "from logqueue.testing import MemoryServer, ServerProcess\n"
        "with ServerProcess(Path('data')) as server, Client(server.url) as client:\n"
        "    client.put_topic('q', type='queue')\n"
        "    client.append('q', [1, 2])\n"
        "    print(len(client.claim('q', max=10).jobs))\n"
    )
    ran = run(tmp_path, str(python), "-c", code)
    assert (ran.returncode, ran.stdout) == (0, "2\n"), ran.stderr
    checked = run(tmp_path, str(python.with_name("logqueue")), "check", "data")
    assert checked.returncode == 0, checked.stderr
