"""Watch sessions across connections: server-side cursors, Last-Event-ID, sharing, restart."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.http.api import Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok, refused
from tests.http.sse import Frame, Stream
from tests.http.watching import (
    bodies,
    cursors_in,
    data_in,
    drain,
    event_id,
    kinds,
    receive,
    refusal,
    seqs_in,
)


def session(api: Api, *names: str, **fields: Any) -> str:
    """A session on topics, each from its start."""
    wid = ok(api.create_watch({name: {} for name in names}, **fields))["wid"]
    assert isinstance(wid, str)
    return wid


def reopened(api: Api, wid: str, topics: int = 1, last_event_id: str | None = None) -> list[Frame]:
    """All frames of one more connection up to the moment when everything is caught up."""
    with api.open_watch(wid, last_event_id=last_event_id) as stream:
        assert stream.status == 200
        return drain(stream, topics)


def test_without_a_header_the_session_goes_on(api: Api, log: str) -> None:
    """Case 92: what was written to an earlier connection is not repeated."""
    wid = session(api, log)
    api.append(log, *"ab")
    assert data_in(reopened(api, wid)) == ["a", "b"]
    assert data_in(reopened(api, wid)) == []
    api.append(log, *"cd")
    assert data_in(reopened(api, wid)) == ["c", "d"]


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_whatever_way_the_connection_ended(api: Api, log: str, leave: str) -> None:
    """Case 92: cursors stand after the last frame written."""
    wid = session(api, log, limit=1)
    api.append(log, *range(3))
    stream = api.open_watch(wid)
    assert seqs_in(drain(stream)) == [1, 2, 3]
    stream.close() if leave == "close" else stream.reset()
    api.append(log, "d")
    assert seqs_in(reopened(api, wid)) == [4]


def test_a_session_that_was_never_opened(api: Api, log: str) -> None:
    """It begins where it was told to."""
    wid = session(api, log)
    api.append(log, 1)
    ok(api.delete(log, before_seq=2))
    api.append(log, 2)
    assert seqs_in(reopened(api, wid)) == [2]


def test_rewinding(api: Api, log: str) -> None:
    """Each id brings the stream back to right behind its frame."""
    wid = session(api, log, limit=2)
    api.append(log, *range(6))
    frames = reopened(api, wid)
    ids = [frame.id for frame in frames if frame.event == "record"]
    assert seqs_in(reopened(api, wid, last_event_id=ids[0])) == [3, 4, 5, 6]
    assert seqs_in(reopened(api, wid, last_event_id=ids[1])) == [5, 6]
    assert seqs_in(reopened(api, wid, last_event_id=ids[2])) == []
    assert seqs_in(reopened(api, wid, last_event_id=frames[-1].id)) == []
    assert seqs_in(reopened(api, wid, last_event_id=event_id({log: 0}))) == [1, 2, 3, 4, 5, 6]
    assert seqs_in(reopened(api, wid)) == []


def test_live_records_after_a_resume(api: Api, log: str) -> None:
    """Nothing of the named frame again, and then what is new."""
    wid = session(api, log)
    api.append(log, *range(3))
    frames = reopened(api, wid)
    with api.open_watch(wid, last_event_id=frames[0].id) as stream:
        drain(stream)
        api.append(log, "live")
        assert seqs_in(receive(stream, 1)) == [4]


def test_frames_of_a_rewound_stream(api: Api, log: str) -> None:
    """from_seq is the cursor of the rewind; ids go on from there."""
    wid = session(api, log)
    api.append(log, *range(5))
    reopened(api, wid)
    frames = reopened(api, wid, last_event_id=event_id({log: 2}))
    [body] = bodies(frames, "record")
    assert (body["from_seq"], body["to_seq"], body["head_seq"]) == (2, 5, 5)
    assert cursors_in(frames[0]) == {log: 5}


def test_a_rewind_moves_the_session_itself(api: Api, log: str) -> None:
    """Cut off right after a rewind, the session goes on behind what it wrote since."""
    wid = session(api, log, limit=1)
    api.append(log, *range(4))
    reopened(api, wid)
    assert seqs_in(reopened(api, wid, last_event_id=event_id({log: 3}))) == [4]
    api.append(log, "e")
    assert seqs_in(reopened(api, wid)) == [5]


@pytest.mark.parametrize("ahead", [4, 5, 1000, 2**64 - 1])
def test_an_id_ahead_of_the_session(api: Api, log: str, ahead: int) -> None:
    """Case 93: it can only rewind."""
    wid = session(api, log)
    api.append(log, *range(3))
    assert seqs_in(reopened(api, wid, last_event_id=event_id({log: ahead}))) == [1, 2, 3]
    api.append(log, "d")
    assert seqs_in(reopened(api, wid, last_event_id=event_id({log: ahead}))) == [4]


def standard(text: str) -> str:
    """Base64 of a text."""
    return base64.b64encode(text.encode()).decode()


GARBAGE = [
    "",
    "0",
    "1",
    "garbage",
    "%%%",
    "é",
    "A" * 5000,
    "{}",
    event_id([]),
    event_id(None),
    event_id(7),
    event_id("text"),
    standard('{"a":0'),
    standard("\x00\x01"),
]


@pytest.mark.parametrize("text", GARBAGE)
def test_ids_that_mean_nothing(api: Api, log: str, text: str) -> None:
    """Case 93: ignored, 200."""
    wid = session(api, log)
    api.append(log, *range(3))
    assert seqs_in(reopened(api, wid)) == [1, 2, 3]
    api.append(log, "d")
    with Stream(api.address, f"/v0/watch/{wid}", {"last-event-id": text}) as stream:
        assert stream.status == 200
        assert seqs_in(drain(stream)) == [4]


@pytest.mark.parametrize("wrong", [-1, 1.5, 1.0, "0", None, True, [0], {}, 2**64], ids=str)
def test_one_wrong_cursor_spoils_the_id(api: Api, topic: str, wrong: object) -> None:
    """Case 93: content that is not all u64 is ignored entirely."""
    first, second = f"{topic}a", f"{topic}b"
    api.make_log(first)
    api.make_log(second)
    wid = session(api, first, second)
    api.append(first, 1)
    api.append(second, 1)
    assert len(seqs_in(reopened(api, wid, 2))) == 2
    spoilt = event_id({first: 0, second: wrong})
    assert seqs_in(reopened(api, wid, 2, spoilt)) == []


def test_an_id_that_names_some_topics(api: Api, topic: str) -> None:
    """Unknown ones are ignored, missing ones stay where they are."""
    first, second = f"{topic}a", f"{topic}b"
    for name in (first, second):
        api.make_log(name)
        api.append(name, *range(3))
    wid = session(api, first, second)
    assert len(seqs_in(reopened(api, wid, 2))) == 6
    frames = reopened(api, wid, 2, event_id({second: 1, f"{topic}no": 0}))
    assert (seqs_in(frames, first), seqs_in(frames, second)) == ([], [2, 3])
    assert cursors_in(frames[-1]) == {first: 3, second: 3}
    assert seqs_in(reopened(api, wid, 2, event_id({}))) == []


def test_a_cursor_in_the_query_is_ignored(api: Api, log: str) -> None:
    """There is no such parameter."""
    wid = session(api, log)
    api.append(log, *range(3))
    reopened(api, wid)
    again = event_id({log: 0})
    query = f"?cursor={again}&last_event_id={again}&lastEventId={again}"
    with api.open_watch(wid, query=query) as stream:
        assert seqs_in(drain(stream)) == []


def test_resuming_below_the_floor(api: Api, topic: str) -> None:
    """Case 94: a rewind into a gap gives a tombstone, then records."""
    api.make_log(topic, cap_records=3)
    wid = session(api, topic)
    api.append(topic, 1, 2)
    first = reopened(api, wid)[0]
    api.append(topic, *range(8))
    assert seqs_in(reopened(api, wid)) == [8, 9, 10]
    frames = reopened(api, wid, last_event_id=first.id)
    assert kinds(frames) == ["tombstone", "record", "caught-up"]
    body = frames[0].json()
    assert (body["reason"], body["gap_from"], body["gap_to"]) == ("from_seq_too_old", 3, 7)
    assert seqs_in(frames) == [8, 9, 10]


def test_resuming_behind_a_tombstone(api: Api, topic: str) -> None:
    """The gap was told already; the records behind it come again."""
    api.make_log(topic, cap_records=3)
    api.append(topic, *range(10))
    wid = session(api, topic)
    tombstone = reopened(api, wid)[0]
    assert tombstone.event == "tombstone"
    frames = reopened(api, wid, last_event_id=tombstone.id)
    assert (kinds(frames), seqs_in(frames)) == (["record", "caught-up"], [8, 9, 10])


def test_two_streams_of_one_session(api: Api, log: str) -> None:
    """They share the cursors: between them nothing is lost."""
    wid = session(api, log, limit=1)
    with api.open_watch(wid) as one, api.open_watch(wid) as two:
        assert (one.status, two.status) == (200, 200)
        one.next_event()
        for number in range(20):
            api.append(log, number)

        def all_here() -> bool:
            for stream in (one, two):
                stream.quiet(0.02)
            return set(seqs_in(one.frames + two.frames)) == set(range(1, 21))

        assert eventually(all_here)


def test_a_session_outlives_its_streams(api: Api, log: str) -> None:
    """Opened and left many times."""
    wid = session(api, log)
    found: list[int] = []
    for number in range(10):
        api.append(log, number)
        found += seqs_in(reopened(api, wid))
    assert found == list(range(1, 11))


def test_a_session_whose_topic_was_made_again(api: Api, log: str) -> None:
    """A cursor above the new head gives a gap, and the new records come."""
    wid = session(api, log)
    api.append(log, *range(5))
    reopened(api, wid)
    ok(api.delete_topic(log))
    api.make_log(log)
    api.append(log, "new life")
    with api.open_watch(wid) as stream:
        frame = stream.next_event()
        assert frame.event in ("tombstone", "topic-deleted")
        if frame.event == "tombstone":
            assert data_in(receive(stream, 1)) == ["new life"]


def test_sessions_do_not_survive_a_restart(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """404; the client makes a new one at its own cursors."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l")
    api.append("l", *range(3))
    wid = session(api, "l")
    last = reopened(api, wid)[-1]
    assert server.terminate() == 0
    again = api_for(server.restart())
    refused(refusal(again, wid), 404, "not_found", None)
    again.append("l", "after")
    cursor = cursors_in(last)["l"]
    fresh = ok(again.create_watch({"l": {"from_seq": cursor}}))["wid"]
    assert data_in(reopened(again, fresh)) == ["after"]
