"""Threads that read the first value of a kind at once: msgspec by itself crashes the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house import ROOT

PROGRAM = """
import threading
import msgspec
from logqueue.client.calls import decode
from logqueue.worker.payload import typed

began, both = threading.Event(), threading.Event()

def slow():
    began.set()
    both.wait(0.2)  # as long as the other thread takes to come by, if it may
    return int

class Inner(msgspec.Struct):
    a: "slow()"

class Outer(msgspec.Struct):
    inner: Inner

def read():
    assert READ.inner.a == 1

first = threading.Thread(target=read)
first.start()
began.wait()
read()
both.set()
first.join()
"""


@pytest.mark.parametrize(
    "read", ["""decode(b'{"inner": {"a": 1}}', Outer)""", "typed({'inner': {'a': 1}}, Outer)"]
)
def test_two_threads_read_the_first_value_of_a_kind(read: str) -> None:
    program = PROGRAM.replace("READ", read)
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
