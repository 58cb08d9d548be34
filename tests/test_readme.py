"""README.md keeps its promises: its curl commands run against a real server and answer as shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests import readme
from tests.house import page
from tests.http.process import ServerProcess

README_ADDRESS = "http://127.0.0.1:4000"
CHANGES_EACH_TIME = frozenset({"$ts", "deadline"})
STREAM_SECONDS = 1.0
CURL_TIMED_OUT = 28

_STEP = re.compile(
    r"^```sh\n(?P<sh>.*?)^```$(?:\s*^```(?P<kind>json|text)\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Step:
    """A shell block of the tour, and the answer that the page shows for it."""

    commands: list[str]
    kind: str | None
    shown: str | None


def steps(heading: str) -> list[Step]:
    """The steps below a heading, up to the next one."""
    text = page("README.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert text, f"README.md has no section {heading!r}"
    return [
        Step(readme.Block(0, match["sh"]).commands(), match["kind"], match["shown"])
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


def run(assignments: list[str], command: str, address: str) -> str:
    """Run one command as a shell would, and return what it prints."""
    is_stream = command.startswith("curl -N")
    if is_stream:
        command += f" --max-time {STREAM_SECONDS}"
    script = "\n".join([*assignments, command]).replace(README_ADDRESS, address)
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": os.environ["PATH"], "CURL_HOME": os.devnull, "NO_PROXY": "*"},
    )
    assert done.returncode == (CURL_TIMED_OUT if is_stream else 0), done.stderr
    return done.stdout


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
    elif step.kind == "text":
        assert step.shown is not None
        expected = step.shown.partition("…")[0]
        assert printed.startswith(expected), f"README shows\n{expected}\nbut\n{printed}"
    else:
        for line in printed.splitlines():
            assert "error" not in json.loads(line), printed


def play(told: list[Step], address: str) -> int:
    """Run the curl commands of these steps, compare the answers, and count the commands."""
    assignments: list[str] = []
    calls = 0
    for step in told:
        printed = ""
        for command in step.commands:
            if not readme.program(command):
                assignments.append(command)
            elif command.startswith("curl "):
                printed += run(assignments, command, address).rstrip("\n") + "\n"
                calls += 1
        if printed:
            check(step, printed)
    return calls


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="README speaks curl")


@needs_curl
def test_the_tour_goes_as_told(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        calls = play(steps("Five minutes with curl"), address)
    assert calls == 7, "the tour creates, appends, claims, acks, nacks, looks and streams"


@needs_curl
def test_keys_work_as_told(tmp_path: Path) -> None:
    told = steps("Keys")
    keys = re.search(r"LOGQUEUE_API_KEYS='([^']+)' make serve", page("README.md"))
    assert keys is not None
    with served(tmp_path, API_KEYS=keys[1]) as address:
        assert play(told, address) == 1


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
