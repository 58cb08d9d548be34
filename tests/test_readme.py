"""README.md keeps its promises: its commands and code run against a real server, as shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests import readme
from tests.effort import IS_THOROUGH
from tests.house import ROOT, page
from tests.http.process import ServerProcess

README_ADDRESS = "http://127.0.0.1:4000"
CHANGES_EACH_TIME = frozenset({"$ts", "deadline"})
COMMAND_S = 180
STREAM_SECONDS = 8.0
CURL_TIMED_OUT = 28
ELSEWHERE = ("make", "docker", "export", "logqueue serve", ".venv/")
"""Commands that others run: the server under test stands for `serve`, test_house_pages.py looks at
the rest."""

PIPELINE = "logqueue pipeline "
"""Each of these commands starts a Java. In `make test` tests/spark/test_pipeline_cli.py runs them
in the session that the tests of Spark share; in `make test-all` the tour does, too."""

_STEP = re.compile(
    r"^```(?P<language>sh|python)\n(?P<code>.*?)^```$"
    r"(?:\s*^```(?P<kind>json|text)\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Step:
    """A block of the tour, and the answer that the page shows for it."""

    language: str
    code: str
    kind: str | None
    shown: str | None

    def commands(self) -> list[str]:
        """The commands of a shell block."""
        return readme.Block(0, self.code).commands()


def steps(heading: str) -> list[Step]:
    """The steps below a heading, up to the next one of its level."""
    text = page("README.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert text, f"README.md has no section {heading!r}"
    return [
        Step(match["language"], match["code"], match["kind"], match["shown"])
        for match in _STEP.finditer(text)
    ]


@contextmanager
def served(tmp_path: Path, **settings: str) -> Iterator[str]:
    """A server as README starts one, but on any free port; gives its address."""
    process = ServerProcess(tmp_path / "logqueue-data", settings=settings)
    try:
        yield process.start().base_url
    finally:
        process.stop()


@dataclass
class Reader:
    """Somebody who types what the page says, in a folder of their own.

    Attributes:
        address: Of the server.
        folder: Where files that the page tells are kept.
        ran: How many commands of which program ran.
    """

    address: str
    folder: Path
    ran: dict[str, int] = field(default_factory=dict)
    assignments: list[str] = field(default_factory=list)

    def follow(self, told: list[Step]) -> None:
        """Do all steps, and compare what they print with what the page shows."""
        for step in told:
            printed = self.do(step)
            if printed is not None:
                check(step, printed)

    def do(self, step: Step) -> str | None:
        """What a step prints; None when it runs nothing."""
        if step.language == "python":
            named = re.match(r"# (\w+\.py)\n", step.code)
            path = self.folder / (named[1] if named else "snippet.py")
            path.write_text(step.code.replace(README_ADDRESS, self.address), encoding="utf-8")
            return None if named else self._python(path)
        shown = (step.shown or "").splitlines()
        printed: list[str] = []
        is_run = False
        for command in step.commands():
            if not readme.program(command):
                self.assignments.append(command)
            elif command.startswith(PIPELINE) and not IS_THOROUGH:
                self._count("logqueue")
            elif not command.startswith(ELSEWHERE) and "make serve" not in command:
                is_run = True
                printed += self._run(command, len(shown) - len(printed)).splitlines()
        return "\n".join(printed) if is_run else None

    def _python(self, path: Path) -> str:
        self._count("python")
        return self._finish([sys.executable, str(path)])

    def _run(self, command: str, lines_left: int) -> str:
        """Run one command as a shell would, and return what it prints."""
        self._count(readme.program(command)[0])
        if command.startswith("logqueue watch"):
            return self._watch(command, lines_left)
        is_stream = command.startswith("curl -N")
        if is_stream:
            command += f" --max-time {STREAM_SECONDS}"
        script = "\n".join([*self.assignments, command]).replace(README_ADDRESS, self.address)
        return self._finish(["sh", "-eu", "-c", script], CURL_TIMED_OUT if is_stream else 0)

    def _finish(self, command: list[str], status: int = 0) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env=self._environment(),
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "WARN" not in done.stderr and "Exception" not in done.stderr, done.stderr
        is_told = "logqueue" in command[-1] and not {"worker", "pipeline"} & {*command[-1].split()}
        talk = done.stderr if is_told else ""
        return talk + done.stdout

    def _watch(self, command: str, lines: int) -> str:
        """What a command without an end prints first: as many lines as the page has left."""
        with subprocess.Popen(
            command.split(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment(),
        ) as process:
            assert process.stdout is not None
            printed = "".join(process.stdout.readline() for _ in range(lines))
            process.terminate()
            process.stdout.close()
        return printed

    def _count(self, program: str) -> None:
        self.ran[program] = self.ran.get(program, 0) + 1

    def _environment(self) -> Mapping[str, str]:
        own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            "PATH": own,
            "PYTHONPATH": str(ROOT),
            "LOGQUEUE_URL": self.address,
            "CURL_HOME": os.devnull,
            "NO_PROXY": "*",
            # For tables of a few rows: optimised machine code costs more than it saves.
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }


def agrees(shown: Any, actual: Any, key: str = "") -> bool:
    """Whether an answer is as shown: it may hold more, and … stands for any text."""
    if key in CHANGES_EACH_TIME:
        return type(shown) is type(actual)
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(
            name in actual and agrees(value, actual[name], name) for name, value in shown.items()
        )
    if isinstance(shown, list):
        return (
            isinstance(actual, list)
            and len(shown) == len(actual)
            and all(agrees(one, other) for one, other in zip(shown, actual, strict=True))
        )
    if isinstance(shown, str):
        return isinstance(actual, str) and fnmatchcase(actual, shown.replace("…", "*"))
    return type(shown) is type(actual) and bool(shown == actual)


def check(step: Step, printed: str) -> None:
    """Compare what a step printed with what the page shows for it."""
    if step.kind == "json":
        assert step.shown is not None
        shown, actual = json.loads(step.shown), json.loads(printed)
        assert agrees(shown, actual), f"README shows\n{step.shown}\nthe server said\n{printed}"
    elif step.kind == "text" and "curl -N" in step.code:
        assert step.shown is not None
        expected = step.shown.partition("…")[0]
        assert printed.startswith(expected), f"README shows\n{expected}\nbut\n{printed}"
    elif step.kind == "text":
        assert step.shown is not None
        assert reads_as(step.shown, printed), f"README shows\n{step.shown}\nbut\n{printed}"
    else:
        for line in printed.splitlines():
            assert "error" not in json.loads(line), printed


def reads_as(shown: str, printed: str) -> bool:
    """Whether lines say what is shown, however wide their columns; … stands for any text."""
    told, said = shown.splitlines(), printed.splitlines()
    return len(told) == len(said) and all(
        fnmatchcase(
            " ".join(actual.split()),
            " ".join(line.split()).replace("[", "[[]").replace("…", "*"),
        )
        for line, actual in zip(told, said, strict=True)
    )


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="README speaks curl")


@needs_curl
def test_the_tour_goes_as_told(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        reader = Reader(address, tmp_path)
        reader.follow(steps("Five minutes"))
    assert reader.ran == {"curl": 7, "logqueue": 17, "python": 2}, "no command is passed over"
    assert (tmp_path / "report" / "report.html").is_file() or not IS_THOROUGH


@needs_curl
def test_keys_work_as_told(tmp_path: Path) -> None:
    keys = re.search(r"LOGQUEUE_API_KEYS='([^']+)' make serve", page("README.md"))
    assert keys is not None
    with served(tmp_path, API_KEYS=keys[1]) as address:
        reader = Reader(address, tmp_path)
        reader.follow(steps("Keys"))
    assert reader.ran == {"curl": 1}


@pytest.mark.parametrize(
    ("shown", "actual", "result"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ({"lease_id": "lease_…"}, {"lease_id": "lease_7f"}, True),
        ({"lease_id": "lease_…"}, {"lease_id": "7f"}, False),
        ({"$ts": 5}, {"$ts": 9}, True),
        ({"$ts": 5}, {"$ts": "9"}, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 2, 3], False),
    ],
)
def test_agrees(shown: Any, actual: Any, result: bool) -> None:
    assert agrees(shown, actual) is result


@pytest.mark.parametrize(
    ("shown", "printed", "result"),
    [
        ("a b\n", "a    b\n", True),
        ("a … c\n", "a x y c\n", True),
        ("a b\n", "a c\n", False),
        ("a\n", "a\nb\n", False),
        ("[1]\n", "1\n", False),
    ],
)
def test_reads_as(shown: str, printed: str, result: bool) -> None:
    assert reads_as(shown, printed) is result
