"""Someone who does what docs/pipeline.md says, in the order in which it says it.

Owns: running its commands and code. Must not know: what they must lead to.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from logqueue.cli.main import main
from tests import readme

PAGE = "docs/pipeline.md"
ADDRESS = "http://127.0.0.1:4000"
ELSEWHERE = ("pip install", "logqueue serve")
"""Commands that the test stands in for."""

DIRECTORY_FLAGS = frozenset(
    {"--to", "--archive", "--tables", "--from", "--path", "--against", "--py-files", "-o"}
)
DIRECTORIES = (
    "archive",
    "reports",
    "slow",
    "mails",
    "orders.parquet",
    "logqueue-data",
    "log-archive",
)
"""What Python names relative to where it runs. The Java of a session that is shared by all tests
runs elsewhere, so the test makes them absolute, and so it does with checkpoints."""

_STEP = re.compile(r"^```(?P<language>sh|python)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


FINISHED_RUNS = "\n".join(
    [
        "```sh",
        "logqueue create work --queue",
        *["logqueue append work --data 1"] * 12,
        "logqueue claim work --max 12 --lease 5m",
        f"logqueue ack work {' '.join(map(str, range(1, 13)))}",
        "```",
    ]
)
"""What a reader has and the page's three jobs are not: enough runs to simulate a queue."""


class Follower:
    """Runs the blocks of a page against a server, in a folder."""

    def __init__(self, address: str, folder: Path, said: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self.folder = folder
        self.summaries: dict[str, dict[str, object]] = {}
        self.commands = 0
        self._said = said
        self._names: dict[str, object] = {}

    def follow(self, text: str) -> None:
        """Run every block."""
        for step in _STEP.finditer(text):
            if step["language"] == "python":
                code = re.sub(r'"([\w./,-]+)"', self._placed, step["code"])
                code = code.replace(ADDRESS, self.address)
                exec(compile(code, PAGE, "exec"), self._names)
            else:
                for command in readme.Block(0, step["code"]).commands():
                    if not command.startswith(ELSEWHERE):
                        self._run(command.replace(ADDRESS, self.address))

    def _placed(self, quoted: re.Match[str]) -> str:
        names = quoted[1].split(",")
        if all(name in DIRECTORIES or name.startswith("checkpoints/") for name in names):
            return f'"{",".join(str(self.folder / name) for name in names)}"'
        return quoted[0]

    def _run(self, command: str) -> None:
        words = shlex.split(command)
        assert words[0] == "logqueue", command
        for n, word in enumerate(words[:-1]):
            if word in DIRECTORY_FLAGS and words[1] == "pipeline":
                words[n + 1] = ",".join(str(self.folder / name) for name in words[n + 1].split(","))
        self._said.readouterr()
        status = main(words[1:])
        printed = self._said.readouterr()
        assert status == 0, f"{command}\n{printed.out}{printed.err}"
        self.commands += 1
        if printed.out.startswith('{"job"'):
            summary = json.loads(printed.out.splitlines()[-1])
            self.summaries[summary["job"]] = summary
