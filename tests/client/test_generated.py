"""The blocking client is what the script makes of the awaiting one."""

from __future__ import annotations

import pytest

from tests.house import page
from tools.unasync import CODE, PROSE, blocking

SOURCE = page("logqueue/client/asynchronous.py")
TARGET = page("logqueue/client/blocking.py")


def test_the_committed_file_is_what_the_script_makes() -> None:
    assert blocking(SOURCE) == TARGET, "logqueue/client/blocking.py is out of date: make generate"


def test_a_substitution_that_finds_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no longer says: A client of one log, for one event"):
        blocking(SOURCE.replace("for one event loop", "for a loop"))
    with pytest.raises(ValueError, match=r"no longer has: .*enter"):
        blocking(SOURCE.replace("__aenter__", "enter").replace("__aexit__", "exit"))


def test_what_would_await_in_the_blocking_client_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"left in the blocking client: .*AsyncIterator"):
        blocking(SOURCE.replace("-> Self:", "-> AsyncIterator:"))


def test_each_substitution_is_named_once() -> None:
    assert len({said for said, _ in [*PROSE, *CODE]}) == len(PROSE) + len(CODE)
