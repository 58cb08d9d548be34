"""Watch sessions: when they expire, how many there may be, where a client may go back to."""

from __future__ import annotations

import pytest

from logqueue.api.frames import encode_cursors
from logqueue.errors import NotFound, Throttled, Unauthorized
from logqueue.server.auth import Key, parse_keys
from logqueue.server.client_memory import ClientMemory
from logqueue.server.engine.subscribers import ReadOptions
from logqueue.server.engine.watch_sessions import SESSION_TTL_S, ReaderSession, WatchSessions


class Hours:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Hours:
    """The registry's clock."""
    return Hours()


def session(key: Key | None = None, **starts: int) -> ReaderSession:
    """A session that is not registered yet."""
    return ReaderSession(key, starts or {"t": 0}, ReadOptions(1, 1, frozenset(), 0), 15.0)


def is_there(sessions: WatchSessions, found: ReaderSession) -> bool:
    """Whether a session can be found."""
    try:
        return sessions.find(found.wid) is found
    except NotFound:
        return False


def test_ids_cannot_be_guessed_and_fit_a_path() -> None:
    made = {session().wid for _ in range(100)}
    assert len(made) == 100
    assert all(wid.startswith("wid_") and len(wid) == 26 for wid in made)


def test_an_unused_session_expires(clock: Hours) -> None:
    sessions = WatchSessions(0, clock, ClientMemory(0, 0))
    first, second = session(), session()
    sessions.add(first)
    clock.now_s += 10
    sessions.add(second)
    clock.now_s += SESSION_TTL_S - 10
    assert is_there(sessions, first)
    clock.now_s += 1
    assert (is_there(sessions, first), is_there(sessions, second)) == (False, True)
    assert len(sessions) == 1


def test_a_session_in_use_never_expires(clock: Hours) -> None:
    sessions = WatchSessions(0, clock, ClientMemory(0, 0))
    used = session()
    sessions.add(used)
    sessions.opened(used)
    sessions.opened(used)
    clock.now_s += 10 * SESSION_TTL_S
    sessions.closed(used)
    clock.now_s += 10 * SESSION_TTL_S
    assert is_there(sessions, used)
    sessions.closed(used)
    clock.now_s += SESSION_TTL_S
    assert is_there(sessions, used)
    clock.now_s += 1
    assert not is_there(sessions, used)


def test_expired_sessions_make_room(clock: Hours) -> None:
    sessions = WatchSessions(2, clock, ClientMemory(0, 0))
    for _ in range(2):
        sessions.add(session())
    with pytest.raises(Throttled) as refusal:
        sessions.add(session())
    assert refusal.value.detail == {"limit": "max_watch_sessions", "max": 2}
    clock.now_s += SESSION_TTL_S + 1
    sessions.forget_expired()
    sessions.add(session())
    assert len(sessions) == 1


def test_going_back_never_goes_forward() -> None:
    watched = session(a=5, b=5, c=5)
    watched.rewind(encode_cursors({"a": 3, "b": 9, "other": 1}))
    assert {name: cursor.seq for name, cursor in watched.cursors.items()} == {
        "a": 3,
        "b": 5,
        "c": 5,
    }


@pytest.mark.parametrize(
    "event_id",
    [b"", b"%%%", b"\xff", b"e30", b"W10", b"bnVsbA", b"eyJhIjoiMSJ9", b"eyJhIjotMX0", b"eyJhIjox"],
)
def test_an_id_that_is_none_of_ours_is_passed_over(event_id: bytes) -> None:
    watched = session(a=5)
    watched.rewind(event_id)
    assert watched.cursors["a"].seq == 5


def test_only_the_key_that_made_it_opens_it() -> None:
    maker, other = parse_keys("maker,other").keys
    session(None).require_key(None)
    session(maker).require_key(maker)
    for key in (other, None):
        with pytest.raises(Unauthorized):
            session(maker).require_key(key)
