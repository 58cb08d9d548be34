"""How long the way of one request is: the Python calls from its bytes to the bytes of its reply.

Counted, not timed: what a request costs is first of all how many functions it passes. The bounds
are what is reached now; lower them when the way gets shorter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.house import ROOT
from tests.server.memory import Memory

BEGIN = "HttpConnection.data_received"
END = "HttpConnection.on_response_complete"

KNOWN_HEAD_CALLS_MAX = 10
"""From the bytes to the handler: head, key, body."""

CALLS_PER_WARM_BATCH_MAX = 3.2
"""Of a page that was encoded before: how large the batch is, and where its text is."""

NOT_ON_THE_WAY = (
    "logqueue/testing/",
    "wal/testing/",
    "wal/committer.py",
    "wal/head.py",
    "wal/segment.py",
    "tests/",
    ".venv/",
)
"""Stand-ins for the network and the disk, and what the committer does in a thread of its own."""

HTTP = ("logqueue/server/http/", "logqueue/server/client_memory.py")
"""What each connection of a turn costs by itself; see `test_a_request_passes_few_functions`."""


class _Way:
    """The functions that a request passes, in order."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, str]] = []
        self._is_on_it = False

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """See sys.setprofile."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_qualname == BEGIN:
            self._is_on_it = True
        name = code.co_filename.removeprefix(f"{ROOT}/")
        if self._is_on_it and name != code.co_filename and not name.startswith(NOT_ON_THE_WAY):
            self.passed.append((name, code.co_qualname))
        if code.co_qualname == END:
            self._is_on_it = False


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A server that has met both kinds of requests before, and notes no request as slow."""
    monkeypatch.setattr("logqueue.server.metrics.SLOW_FROM_S", float("inf"))
    server = Memory()
    server.queue()
    for _ in range(3):
        server.append(1, 2)
        server.take()
    yield server
    server.close()


def way_of(memory: Memory, what: str) -> list[tuple[str, str]]:
    """What one request passes in the server's thread."""
    way = _Way()
    memory.core._run(lambda: sys.setprofile(way.note))
    try:
        if what == "claim":
            assert len(memory.take()) == 1
        else:
            memory.append(1)
    finally:
        memory.core._run(lambda: sys.setprofile(None))
    return way.passed


@pytest.mark.parametrize(("what", "handler"), [("claim", "claim"), ("append", "append")])
def test_a_request_with_a_known_head_is_soon_at_its_handler(
    memory: Memory, what: str, handler: str
) -> None:
    names = [name.rpartition(".")[2] for _, name in way_of(memory, what)]
    assert names.index(handler) <= KNOWN_HEAD_CALLS_MAX, names[: names.index(handler)]


@pytest.mark.parametrize(
    ("what", "files_max", "calls_max"), [("claim", 31, 90), ("append", 32, 86)]
)
def test_a_request_passes_few_functions(
    memory: Memory, what: str, files_max: int, calls_max: int
) -> None:
    passed = way_of(memory, what)
    files = {file for file, _ in passed}
    way = "\n".join(f"{file}: {name}" for file, name in passed)
    assert len(files) <= files_max, f"{len(files)} files:\n" + "\n".join(sorted(files))
    assert len(passed) <= calls_max, f"{len(passed)} calls:\n{way}"


def calls_of(memory: Memory, wanted: list[tuple[str, str, object]]) -> int:
    """The calls, HTTP itself left out, of requests that are read in one turn of the loop."""
    calls = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        is_theirs = name == frame.f_code.co_filename or name.startswith(NOT_ON_THE_WAY)
        if event == "call" and not is_theirs and not name.startswith(HTTP):
            calls += 1

    memory.core._run(lambda: sys.setprofile(note))
    try:
        answers = memory.begin_together(*wanted)
    finally:
        memory.core._run(lambda: sys.setprofile(None))
    assert all(answer.status == 200 for answer in answers)
    return calls


@pytest.mark.parametrize(("what", "more_max"), [("append", 16.5), ("claim", 22.5), ("ack", 17.0)])
def test_a_further_request_of_a_turn_passes_fewer(
    memory: Memory, what: str, more_max: float
) -> None:
    memory.append(*range(30))
    held = [job["$seq"] for job in memory.take(max=20)]
    bodies: dict[str, Callable[[], object]] = {
        "append": lambda: {"records": [{"data": 1}]},
        "claim": lambda: {"node": "w"},
        "ack": lambda: {"node": "w", "seqs": [held.pop()]},
    }
    path = "topics/q" if what == "append" else f"topics/q/{what}"
    one, many = ([("POST", path, bodies[what]()) for _ in range(count)] for count in (1, 11))
    more = (-calls_of(memory, one) + calls_of(memory, many)) / 10
    assert more <= more_max


@pytest.mark.parametrize("records", [1, 100])
def test_a_further_batch_of_a_warm_page_passes_few_functions(memory: Memory, records: int) -> None:
    """Also when its data may leave memory: of what is encoded already, no data is looked at."""
    counts: list[int] = []
    for batches in (1, 11):
        topic = f"t{batches}"
        memory.call("PUT", f"topics/{topic}", {})
        for _ in range(batches):
            memory.append(*["x" * (2000 // records)] * records, topic=topic)
        wanted = [("POST", f"topics/{topic}/diff", {"from_seq": 0, "limit": 2000})]
        # The first encodes the records.
        counts.append([calls_of(memory, [*wanted]) for _ in range(2)][-1])
    assert counts[1] - counts[0] <= 10 * CALLS_PER_WARM_BATCH_MAX


@pytest.mark.parametrize(
    ("path", "calls_max"), [("health", 24), ("topics/q", 75), ("topics/q/stats", 71)]
)
def test_a_small_read_passes_few_functions(memory: Memory, path: str, calls_max: int) -> None:
    way = _Way()
    for _ in range(2):
        memory.call("GET", path)
    memory.core._run(lambda: sys.setprofile(way.note))
    try:
        memory.call("GET", path)
    finally:
        memory.core._run(lambda: sys.setprofile(None))
    names = [name for _, name in way.passed]
    assert names.count("HttpConnection._write") == 1
    assert len(names) <= calls_max, "\n".join(names)
