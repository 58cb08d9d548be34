"""Watching and working: frames, breaks, resuming, and what is said about leases that went."""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from logqueue import errors
from logqueue.client import (
    Backoff,
    Client,
    ConnectionFailed,
    From,
    Interrupted,
    LostReply,
    UnexpectedReply,
    Unreachable,
)
from logqueue.client.failures import Silence
from logqueue.shapes import CaughtUp, Gap, Job, Record, Records, TopicDeleted
from tests.client.either import Naps, Opened, event_stream

OPENING = b"retry: 2000\n\n: hb\n\n"
GONE = httpx.ReadError("reset")

Step = Callable[[httpx.Request], httpx.Response]


def ident(**cursors: int) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursors).encode()).rstrip(b"=").decode()


def frame(event: str, said: dict[str, Any], **cursors: int) -> bytes:
    return f"id: {ident(**cursors)}\nevent: {event}\ndata: {json.dumps(said)}\n\n".encode()


def records(topic: str, from_seq: int, *seqs: int) -> bytes:
    said = [{"$seq": seq, "$ts": 1, "data": seq} for seq in seqs]
    return frame(
        "record",
        {"topic": topic, "records": said, "from_seq": from_seq, "to_seq": seqs[-1], "head_seq": 99},
        **{topic: seqs[-1]},
    )


def job(seq: int, lease: str = "lease_1") -> bytes:
    said = {"topic": "q", "$seq": seq, "lease_id": lease, "deadline": 9, "$ts": 1}
    return (
        f"id: {seq}\nevent: job\ndata: {json.dumps({**said, 'deliveries': 1, 'data': seq})}\n\n"
    ).encode()


def session(wid: str, **cursors: int) -> httpx.Response:
    topics = {n: {"from_seq": at, "head_seq": 99, "earliest_seq": 1} for n, at in cursors.items()}
    return httpx.Response(
        200,
        json={
            "wid": wid,
            "stream_url": f"/v0/watch/{wid}",
            "session_ttl_ms": 300_000,
            "topics": topics,
        },
    )


def refusal(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": "why"}})


class Server:
    """Answers one request after the other from a script, and remembers them."""

    def __init__(self, *steps: httpx.Response | Exception) -> None:
        self._steps = [*steps]
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        assert self._steps, f"nothing scripted for {request.method} {request.url}"
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    @property
    def told(self) -> list[tuple[str, str, str | None]]:
        """Method, path and Last-Event-ID of each request."""
        return [
            (r.method, r.url.raw_path.decode(), r.headers.get("last-event-id"))
            for r in self.requests
        ]

    def bodies(self) -> list[Any]:
        """The bodies of the POSTs."""
        return [json.loads(r.content)["topics"] for r in self.requests if r.method == "POST"]


def connect(opened: Opened, server: Server, **more: Any) -> Client:
    return opened("http://queue.test", transport=httpx.MockTransport(server), **more)


def seqs(frames: list[Any]) -> list[list[int]]:
    return [[r.seq for r in f.records] for f in frames if isinstance(f, Records)]


# -- watching ------------------------------------------------------------------------------------


def test_a_watch_yields_every_kind_of_frame_and_ends_with_its_topics(opened: Opened) -> None:
    gap = {
        "topic": "a", "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 3, "earliest_seq": 4,
        "head_seq": 4,
    }  # fmt: skip
    server = Server(
        session("wid_1", a=0),
        event_stream(
            OPENING,
            frame("tombstone", gap, a=3),
            records("a", 3, 4),
            frame("caught-up", {"topic": "a", "head_seq": 4}, a=4),
            frame("unheard-of", {}, a=4),
            frame("topic-deleted", {"topic": "a", "head_seq": 0, "reason": "deleted"}, a=4),
        ),
    )
    assert [*connect(opened, server).watch("a", limit=5, node="n")] == [
        Gap(topic="a", gap_from=1, gap_to=3, reason="from_seq_too_old", earliest_seq=4, head_seq=4),
        Records(
            topic="a",
            records=[Record(seq=4, ts=1, data=4)],
            from_seq=3,
            to_seq=4,
            head_seq=99,
        ),
        CaughtUp(topic="a", head_seq=4),
        TopicDeleted(topic="a"),
    ]
    assert server.told == [("POST", "/v0/watch", None), ("GET", "/v0/watch/wid_1", None)]
    assert json.loads(server.requests[0].content) == {
        "topics": {"a": {"from_seq": 0}},
        "node": "n",
        "limit": 5,
        "include_data": True,
        "include_tags": True,
        "include_meta": True,
        "heartbeat_ms": 15_000,
    }
    assert server.requests[1].headers["accept"] == "text/event-stream"
    assert server.requests[1].extensions["timeout"]["read"] == 45.0


@pytest.mark.parametrize(
    ("topics", "tail", "sent"),
    [
        ("a", False, {"a": {"from_seq": 0}}),
        (["a", "b"], True, {"a": {"tail": True}, "b": {"tail": True}}),
        ({"a": 7, "b": From(tail=True)}, False, {"a": {"from_seq": 7}, "b": {"tail": True}}),
    ],
)
def test_where_a_watch_begins(opened: Opened, topics: Any, tail: bool, sent: object) -> None:
    server = Server(session("wid_1"))
    assert [*connect(opened, server).watch(topics, tail=tail)] == [
        TopicDeleted(topic=name) for name in json.loads(server.requests[0].content)["topics"]
    ]
    assert server.bodies() == [sent]


def test_a_watch_over_nothing_is_refused(opened: Opened) -> None:
    with pytest.raises(ValueError, match="at least one topic"):
        connect(opened, Server()).watch([])


def test_after_a_break_a_watch_goes_on_behind_its_last_frame(opened: Opened, naps: Naps) -> None:
    server = Server(
        session("wid_1", a=0),
        event_stream(OPENING, records("a", 0, 1, 2), records("a", 2, 3)[:-20], GONE),
        Unreachable("still away"),
        event_stream(OPENING, records("a", 2, 3), frame("error", SHUTDOWN, a=3)),
        event_stream(OPENING, frame("topic-deleted", {"topic": "a"}, a=3)),
    )
    assert seqs([*connect(opened, server).watch("a")]) == [[1, 2], [3]]
    assert server.told == [
        ("POST", "/v0/watch", None),
        ("GET", "/v0/watch/wid_1", None),
        ("GET", "/v0/watch/wid_1", ident(a=2)),
        ("GET", "/v0/watch/wid_1", ident(a=2)),
        ("GET", "/v0/watch/wid_1", ident(a=3)),
    ]
    assert naps.taken == [2.0, 2.0, 2.0], "the server asked for two seconds"


SHUTDOWN = {"code": "server_shutting_down", "message": "stopping"}


def test_without_an_id_to_resume_from_a_new_session_begins(opened: Opened) -> None:
    server = Server(
        session("wid_1", a=5),
        event_stream(OPENING, GONE),
        session("wid_2", a=5),
        event_stream(records("a", 5, 6), frame("topic-deleted", {"topic": "a"}, a=6)),
    )
    assert seqs([*connect(opened, server).watch("a", tail=True)]) == [[6]]
    assert server.bodies() == [{"a": {"tail": True}}, {"a": {"from_seq": 5}}]


def test_after_silence_a_new_session_begins(opened: Opened) -> None:
    server = Server(
        session("wid_1", a=0, b=0),
        event_stream(records("a", 0, 1), httpx.ReadTimeout("silence")),
        session("wid_2", a=1, b=0),
        event_stream(
            frame("topic-deleted", {"topic": "a"}, a=1), frame("topic-deleted", {"topic": "b"}, b=0)
        ),
    )
    assert len([*connect(opened, server).watch(["a", "b"])]) == 3
    assert server.bodies()[1] == {"a": {"from_seq": 1}, "b": {"from_seq": 0}}
    assert server.told[2][1] == "/v0/watch?lenient=true"


def test_a_session_that_is_gone_is_made_anew_at_the_same_cursors(opened: Opened) -> None:
    # A gap says where reading resumes; after a recreation that is below where it ends.
    gap = {
        "topic": "a", "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 9, "earliest_seq": 3,
        "head_seq": 9,
    }  # fmt: skip
    server = Server(
        session("wid_1", a=50, b=0, c=0),
        event_stream(
            frame("tombstone", gap, a=9), frame("topic-deleted", {"topic": "c"}, a=9), GONE
        ),
        refusal(404, "not_found"),
        session("wid_2", a=2),
        event_stream(records("a", 2, 3), frame("topic-deleted", {"topic": "a"}, a=3)),
    )
    frames = [*connect(opened, server).watch({"a": 50, "b": 0, "c": 0})]
    assert server.bodies()[1] == {"a": {"from_seq": 2}, "b": {"from_seq": 0}}
    assert seqs(frames) == [[3]]
    deleted = [frame.topic for frame in frames if isinstance(frame, TopicDeleted)]
    assert deleted == ["c", "b", "a"], "b went while no client was connected"


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([refusal(404, "topic_not_found")], errors.TopicNotFound),
        ([refusal(404, "not_found")], errors.NotFound),
        ([refusal(403, "forbidden")], errors.Forbidden),
        ([session("wid_1", a=0), refusal(401, "unauthorized")], errors.Unauthorized),
        ([session("wid_1", a=0), httpx.Response(200, text="hello")], UnexpectedReply),
        ([session("wid_1", a=0), event_stream(frame("record", {}, a=1))], UnexpectedReply),
    ],
)
def test_what_no_second_try_would_change_ends_a_watch(
    opened: Opened, steps: list[httpx.Response], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        list(connect(opened, Server(*steps)).watch("a"))


def test_a_server_that_was_never_there_is_soon_given_up(opened: Opened) -> None:
    server = Server(*[httpx.ConnectError("refused")] * 3)
    with pytest.raises(Unreachable):
        list(connect(opened, server, backoff=Backoff(attempts=3)).watch("a"))


def test_a_server_that_went_is_waited_for_as_long_as_asked(opened: Opened, naps: Naps) -> None:
    server = Server(
        event_stream(job(1), GONE), *[httpx.ConnectError("refused")] * 7, refusal(404, "not_found")
    )
    client = connect(
        opened,
        server,
        backoff=Backoff(attempts=1),
        reconnect=Backoff(attempts=None, total_s=None, first_s=1, cap_s=4),
    )
    with pytest.raises(errors.NotFound):
        list(client.work("q"))
    assert naps.taken == [1, 2, 4, 4, 4, 4, 4, 4]
    limited = Server(event_stream(job(1), GONE), *[httpx.ConnectError("refused")] * 2)
    with pytest.raises(Unreachable):
        list(connect(opened, limited, reconnect=Backoff(attempts=3)).work("q"))


# -- working -------------------------------------------------------------------------------------


def test_work_yields_jobs_and_says_which_went_with_the_connection(opened: Opened) -> None:
    acked = {"topic": "q", "acked": 1, "skipped": [], "ready": 0, "in_flight": 0}
    server = Server(
        event_stream(OPENING, job(1), job(2), job(3), GONE),
        httpx.Response(200, json=acked),
        event_stream(OPENING, job(2, "lease_9"), SHUTDOWN_FRAME),
        refusal(404, "topic_not_found"),
    )
    client = connect(opened, server, node="own")
    got: list[Job] = []
    said: list[Interrupted] = []
    with pytest.raises(errors.TopicNotFound):
        for item in client.work("q", max=5, lease_ms=1000):
            if isinstance(item, Interrupted):
                said.append(item)
            else:
                got.append(item)
                if len(got) == 3:
                    client.ack("q", got[0])
    assert [(j.seq, j.lease_id) for j in got] == [
        (1, "lease_1"), (2, "lease_1"), (3, "lease_1"), (2, "lease_9")
    ]  # fmt: skip
    assert [[j.seq for j in i.jobs] for i in said] == [[2, 3], [2]], "1 was acked"
    assert isinstance(said[0].error, LostReply) and isinstance(said[1].error, errors.ShuttingDown)
    assert server.told[0][1] == "/v0/topics/q/work?node=own&max=5&lease_ms=1000&starts=true"


SHUTDOWN_FRAME = b'event: error\ndata: {"code":"server_shutting_down","error":"stopping"}\n\n'


def test_jobs_that_their_caller_dropped_are_not_kept(opened: Opened) -> None:
    server = Server(event_stream(job(1), job(2), GONE), refusal(404, "topic_not_found"))
    stream = connect(opened, server).work("q")
    next(stream)
    second = next(stream)
    gc.collect()
    interrupted = next(stream)
    assert isinstance(interrupted, Interrupted) and interrupted.jobs == (second,)


def test_a_claim_that_fails_behind_a_stream_is_asked_about_again(opened: Opened) -> None:
    failed = b'event: error\ndata: {"code":409,"error":"is a log now","topic":"q"}\n\n'
    server = Server(event_stream(OPENING, failed), refusal(409, "not_a_queue"))
    stream = connect(opened, server).work("q")
    interrupted = next(stream)
    assert isinstance(interrupted, Interrupted) and interrupted.jobs == ()
    assert isinstance(interrupted.error, ConnectionFailed)
    with pytest.raises(errors.NotAQueue):
        next(stream)


def test_silence_breaks_a_stream(opened: Opened) -> None:
    server = Server(
        event_stream(job(1), httpx.ReadTimeout("silence")), refusal(404, "topic_not_found")
    )
    stream = connect(opened, server).work("q")
    kept = next(stream)
    interrupted = next(stream)
    assert isinstance(interrupted, Interrupted) and interrupted.jobs == (kept,)
    assert isinstance(interrupted.error, Silence)


def test_before_a_stream_ever_opened_nothing_is_said_about_leases(opened: Opened) -> None:
    server = Server(refusal(429, "throttled"), event_stream(job(1)))
    assert isinstance(next(connect(opened, server).work("q")), Job)


def test_streams_that_open_and_break_at_once_are_opened_ever_more_slowly(
    opened: Opened, naps: Naps
) -> None:
    streams = [event_stream(b": hb\n\n", GONE) for _ in range(3)]
    server = Server(*streams, event_stream(job(1), GONE), refusal(404, "topic_not_found"))
    with pytest.raises(errors.TopicNotFound):
        list(connect(opened, server, reconnect=Backoff(first_s=1.0)).work("q"))
    assert naps.taken == [1, 2, 4, 1], "a job makes a stream a good one"


def test_leaving_a_stream_closes_its_connection(opened: Opened) -> None:
    closed: list[bool] = []

    class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Any:
            yield job(1)
            yield job(2)

        async def __aiter__(self) -> Any:
            yield job(1)
            yield job(2)

        def close(self) -> None:
            closed.append(True)

        async def aclose(self) -> None:
            closed.append(True)

    head = {"content-type": "text/event-stream"}
    server = Server(httpx.Response(200, headers=head, stream=Body()))
    stream = connect(opened, server).work("q")
    next(stream)
    stream.close()
    assert closed == [True]
