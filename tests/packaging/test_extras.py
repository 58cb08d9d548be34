"""The base install is a client: what it imports, what it can do, and what it says of the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from logqueue.extras import EXTRAS, MissingExtra, explained
from tests.house import ROOT, is_stdlib, page, sources
from tests.http.process import ServerProcess, environment

BASE = {"msgspec", "httpx", "httpx_sse"}
IMPORTED_AS = {"opentelemetry_api": "opentelemetry", "pyspark": "pyspark"}
"""Distributions whose packages have other names."""

BARE = """
import importlib.abc, sys

WITHOUT = set({without!r})

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in WITHOUT:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

for name in [name for name in sys.modules if name.partition(".")[0] in WITHOUT]:
    del sys.modules[name]
sys.meta_path.insert(0, Without())
"""
"""Python without packages of extras, and without modules that Windows lacks."""

EVERY_EXTRA = {package for packages in EXTRAS.values() for package in packages}
POSIX = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "readline", "uvloop"}


def bare(
    code: str, *arguments: str, posix: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run code where only the base install is, on something like Windows unless told otherwise."""
    before = BARE.format(without=sorted(EVERY_EXTRA if posix else EVERY_EXTRA | POSIX))
    return subprocess.run(
        [sys.executable, "-c", before + code, *arguments],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def test_the_table_of_extras_is_that_of_the_project() -> None:
    project = tomllib.loads(page("pyproject.toml"))["project"]
    base = {Requirement(text).name.replace("-", "_") for text in project["dependencies"]}
    assert base == BASE
    declared = project["optional-dependencies"]
    assert declared.keys() - {"dev"} == EXTRAS.keys()
    for name, packages in EXTRAS.items():
        distributions = {Requirement(text).name.replace("-", "_") for text in declared[name]}
        imported = {IMPORTED_AS.get(found, found) for found in distributions}
        if name != "spark-connect":  # an extra of pyspark brings what is imported
            assert imported <= {*packages}, name


def test_every_package_that_is_imported_is_of_the_base_or_of_an_extra() -> None:
    known = BASE | EVERY_EXTRA | {"logqueue", "wal", "pyspark_logqueue", "pyspark_logqueue_wal"}
    foreign = {
        f"{source.path}:{found.line}: {found.name}"
        for source in sources("logqueue", "wal")
        for found in source.facts.imports
        if not is_stdlib(found.name) and found.name.partition(".")[0] not in known
    }
    assert foreign - {f for f in foreign if f.endswith(": pytest")} == set()


def test_importing_a_client_imports_little() -> None:
    code = "import logqueue, sys; logqueue.Client, logqueue.AsyncClient, logqueue.App"
    asked = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = set(asked.stdout.split())
    assert {name.partition(".")[0] for name in imported} & (
        EVERY_EXTRA | {"httpx", "httpx_sse", "wal"}
    ) == set()
    for room in ("server", "core", "cli", "testing", "spark", "segments"):
        assert f"logqueue.{room}" not in imported


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for commands of the base install."""
    process = ServerProcess(tmp_path_factory.mktemp("slim") / "data").start()
    yield process
    process.stop()


def test_commands_against_a_server_need_no_extra(server: ServerProcess) -> None:
    """All in one process: each would import everything anew."""
    told = [
        ["create", "mail", "--queue"],
        ["append", "mail", "--data", '{"to":"ann"}'],
        ["append", "mail", "--data", '{"to":"bob"}'],
        ["topics"],
        ["claim", "mail", "--max", "2"],
        ["jobs", "mail"],
        ["ack", "mail", "1"],
        ["work", "mail", "--exec", "true", "--once"],
        ["stats"],
        ["stats", "mail"],
        ["workers", "mail"],
        ["drop", "mail", "--yes"],
    ]
    code = (
        "import json\nfrom logqueue.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    print('status', main(words), words)\n"
    )
    ran = bare(code, json.dumps(told), URL=server.base_url)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    statuses = re.findall(r"^status (\d) \['(\w+)'", ran.stdout, re.MULTILINE)
    work = ("3", "work")  # both jobs are leased or done
    assert statuses == [work if w[0] == "work" else ("0", w[0]) for w in told], ran.stdout


def test_a_worker_needs_no_extra(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from logqueue import App\n\napp = App()\n\n\n"
        '@app.task(queue="slim")\ndef greet(name: str) -> None:\n    print("hello", name)\n'
    )
    code = (
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from shop import app, greet\ngreet.send('ann')\n"
        "from logqueue import run_worker\nraise SystemExit(run_worker(app, once=True))\n"
    )
    ran = bare(code, URL=server.base_url)
    assert (ran.returncode, ran.stdout) == (0, "hello ann\n"), ran.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve",), "server"),
        (("completion", "bash"), "cli"),
        (("check", "."), "server"),
        (("pipeline", "sql", "--archive", ".", "select 1"), "reports"),
        (("pipeline", "report", "--path", ".", "--to", "x", "--engine", "spark"), "spark"),
    ],
)
def test_what_needs_an_extra_says_which(arguments: tuple[str, ...], extra: str) -> None:
    code = "from logqueue.cli import main\nraise SystemExit(main(sys.argv[1:]))\n"
    refused = bare(code, *arguments, posix=True)
    assert refused.returncode == 1
    assert re.search(rf"pip install ['\"]logqueue\[{extra}\]['\"]", refused.stderr), refused.stderr
    assert "Traceback" not in refused.stderr and len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from logqueue.testing import MemoryServer", "server"),
        ("from logqueue.worker.middleware.prometheus import PrometheusMetrics", "metrics"),
    ],
)
def test_a_name_that_needs_an_extra_says_which(code: str, extra: str) -> None:
    refused = bare(code)
    assert refused.returncode == 1
    assert f'pip install "logqueue[{extra}]"' in refused.stderr.splitlines()[-1]


def test_other_missing_packages_stay_as_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"), explained("it"):
        import nowhere  # type: ignore[import-not-found]  # noqa: F401
    said = r"^it needs the package shtab, .*logqueue\[cli\]"
    with pytest.raises(MissingExtra, match=said), explained("it"):
        raise ModuleNotFoundError("No module named 'shtab'", name="shtab")
