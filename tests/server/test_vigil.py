"""How long a standby has watched a writer that shows no sign of life, by its own clock."""

from __future__ import annotations

from logqueue.replica.manifest import WriterHeartbeat
from logqueue.server.standby import _Signs, _Vigil

PATIENCE_S = 15.0


def signs(beat: int) -> _Signs:
    """What a writer shows."""
    return _Signs(WriterHeartbeat("w", 1, beat), 1, 7)


def watched(until: int) -> _Vigil:
    """A standby that has looked every second, and always found the same."""
    vigil = _Vigil(PATIENCE_S)
    for second in range(100, 100 + until + 1):
        vigil.saw(signs(1), second, second)
    return vigil


def test_the_time_of_the_same_signs_counts() -> None:
    vigil = watched(10)
    assert vigil.unchanged_s == 10
    vigil.saw(signs(2), 111, 111)
    assert vigil.unchanged_s == 0
    vigil.saw(signs(2), 113, 113)
    assert vigil.unchanged_s == 2


def test_an_answer_is_as_old_as_the_question() -> None:
    vigil = watched(10)
    # The process was stopped with the answer in its hands; the writer has gone on meanwhile.
    vigil.saw(signs(1), 111, 124)
    assert vigil.unchanged_s == 11
    vigil.saw(signs(1), 125, 170)
    assert vigil.unchanged_s == 0


def test_who_slept_has_not_watched() -> None:
    """Both machines were suspended: the writer has had no time yet for another heartbeat."""
    vigil = watched(10)
    vigil.saw(signs(1), 170, 170)
    assert vigil.unchanged_s == 0


def test_a_store_that_was_away_begins_another_watch() -> None:
    vigil = watched(10)
    vigil.interrupt()
    assert vigil.unchanged_s == 0
    vigil.saw(signs(1), 112, 112)
    assert vigil.unchanged_s == 0
