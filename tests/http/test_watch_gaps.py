"""Watch streams: gaps and what they are called, topics that are deleted or made again."""

from __future__ import annotations

import pytest

from tests.http.api import Api
from tests.http.expect import eventually, ok
from tests.http.watching import bodies, cursors_in, data_in, drain, kinds, receive, seqs_in

TOMBSTONE_KEYS = {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"}


def test_a_gap_at_the_opening(api: Api, topic: str) -> None:
    """Case 94: from_seq_too_old first, then the records; its id already holds the gap's end."""
    api.make_log(topic, cap_records=3)
    api.append(topic, *range(10))
    with api.watch(topic) as stream:
        frames = drain(stream)
    assert kinds(frames) == ["tombstone", "record", "caught-up"]
    body = frames[0].json()
    assert set(body) == TOMBSTONE_KEYS
    assert body == {
        "topic": topic,
        "reason": "from_seq_too_old",
        "gap_from": 1,
        "gap_to": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert cursors_in(frames[0]) == {topic: 7}
    assert seqs_in(frames) == [8, 9, 10]


def test_the_cursor_at_the_gap_is_no_gap(api: Api, topic: str) -> None:
    """Processed exactly up to the floor."""
    api.make_log(topic, cap_records=3)
    api.append(topic, *range(10))
    wid = ok(api.create_watch({topic: {"from_seq": 7}}))["wid"]
    with api.open_watch(wid) as stream:
        assert kinds(drain(stream)) == ["record", "caught-up"]


def test_later_gaps_say_why(api: Api, topic: str) -> None:
    """The first one of a topic on a stream is from_seq_too_old, later ones are true."""
    api.make_log(topic, cap_records=3)
    with api.watch(topic) as stream:
        drain(stream)
        for reason, last in (("from_seq_too_old", 10), ("cap", 20), ("cap", 30)):
            api.append(topic, *range(10))
            frames = drain(stream)
            assert kinds(frames) == ["tombstone", "record", "caught-up"]
            body = frames[0].json()
            found = (body["reason"], body["gap_from"], body["gap_to"], body["head_seq"])
            assert found == (reason, last - 9, last - 3, last)
            assert seqs_in(frames) == [last - 2, last - 1, last]


def test_each_topic_has_its_first_gap(api: Api, topic: str) -> None:
    """And a new stream begins anew."""
    names = [f"{topic}a", f"{topic}b"]
    for name in names:
        api.make_log(name, cap_records=1)
    wid = ok(api.create_watch({name: {} for name in names}))["wid"]
    for _ in range(2):
        with api.open_watch(wid) as stream:
            drain(stream, 2)
            for name in names:
                api.append(name, 1, 2, 3)
                frames = drain(stream)
                assert bodies(frames, "tombstone")[0]["reason"] == "from_seq_too_old"


def test_everything_expired(api: Api, log: str) -> None:
    """Case 69: a tombstone, no records, caught up at the head."""
    api.append(log, 1, 2, 3)
    ok(api.put(log, durability="memory", ttl_ms=1))
    assert eventually(lambda: api.facts(log, "count") == (0,))
    with api.watch(log) as stream:
        frames = drain(stream)
    assert kinds(frames) == ["tombstone", "caught-up"]
    body = frames[0].json()
    assert (body["reason"], body["gap_from"], body["gap_to"]) == ("from_seq_too_old", 1, 3)
    assert cursors_in(frames[-1]) == {log: 3}


@pytest.mark.parametrize("from_seq", [4, 99, 2**64 - 1])
def test_a_cursor_ahead_of_the_head(api: Api, log: str, from_seq: int) -> None:
    """Cases 66, 67: a gap over all there was, named from_seq_too_old; then from the earliest."""
    api.append(log, *"abc")
    wid = ok(api.create_watch({log: {"from_seq": from_seq}}))["wid"]
    with api.open_watch(wid) as stream:
        frames = drain(stream)
        assert kinds(frames) == ["tombstone", "record", "caught-up"]
        body = frames[0].json()
        assert (body["reason"], body["gap_from"], body["gap_to"]) == ("from_seq_too_old", 1, 3)
        assert seqs_in(frames) == [1, 2, 3]
        api.append(log, "d")
        assert seqs_in(drain(stream)) == [4]


# -- deleted topics -----------------------------------------------------------------------------


def test_deleting_one_of_two_and_then_the_other(api: Api, topic: str) -> None:
    """Case 96: a last frame for each, at once; the stream ends with the last topic."""
    first, second = f"{topic}a", f"{topic}b"
    api.make_log(first)
    api.make_log(second)
    with api.watch(first, second) as stream:
        drain(stream, 2)
        ok(api.delete_topic(first))
        frame = stream.next_event()
        assert frame.event == "topic-deleted"
        assert frame.json() == {"topic": first, "head_seq": 0, "reason": "deleted"}
        assert frame.id is not None
        api.append(second, 1)
        assert seqs_in(drain(stream)) == [1]
        ok(api.delete_topic(second))
        frame = stream.next_event()
        assert (frame.event, frame.json()["topic"]) == ("topic-deleted", second)
        assert stream.ended()


def test_a_topic_that_comes_back_stays_silent(api: Api, topic: str) -> None:
    """After topic-deleted there is nothing more of this topic on this stream."""
    gone, other = f"{topic}a", f"{topic}b"
    api.make_log(gone)
    api.make_log(other)
    with api.watch(gone, other) as stream:
        drain(stream, 2)
        ok(api.delete_topic(gone))
        assert stream.next_event().event == "topic-deleted"
        api.make_log(gone)
        api.append(gone, "new life")
        api.append(other, 1)
        frames = receive(stream, 1)
        assert seqs_in(frames, other) == [1]
        assert stream.next_event().json() == {"topic": other, "head_seq": 1}
        assert stream.quiet(0.3)


def test_a_topic_deleted_and_made_again_at_once(api: Api, log: str) -> None:
    """It is either gone for this stream, or the stream goes on with a gap; never nothing."""
    api.append(log, *range(5))
    with api.watch(log) as stream:
        drain(stream)
        ok(api.delete_topic(log))
        api.make_log(log)
        api.append(log, "new life")
        frame = stream.next_event()
        assert frame.event in ("topic-deleted", "tombstone"), frame
        if frame.event == "topic-deleted":
            assert stream.ended()
        else:
            assert data_in(receive(stream, 1)) == ["new life"]


def test_topics_deleted_before_the_opening(api: Api, topic: str) -> None:
    """The stream says so and goes on with the rest, or ends."""
    first, second = f"{topic}a", f"{topic}b"
    api.make_log(first)
    api.make_log(second)
    wid = ok(api.create_watch({first: {}, second: {}}))["wid"]
    ok(api.delete_topic(first))
    with api.open_watch(wid) as stream:
        frames = [stream.next_event(), stream.next_event()]
        said = {(frame.event, frame.json()["topic"]) for frame in frames}
        assert said == {("topic-deleted", first), ("caught-up", second)}
        ok(api.delete_topic(second))
        assert stream.next_event().event == "topic-deleted"
        assert stream.ended()
