"""Several servers of one log: how calls and streams find the writer, and what they say if not."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import httpx
import pytest

from logqueue import errors
from logqueue.client import Backoff, Client, Interrupted, LostReply, TlsFailed, Unreachable
from logqueue.client.failures import ConnectionFailed
from logqueue.client.servers import ELSEWHERE, Servers, writer_of
from logqueue.shapes import Job, Records
from tests.client.either import Naps, Opened, event_stream

A, B, C = (f"http://{name}.test:4000" for name in "abc")
JOB = Job(seq=1, lease_id="lease_1", deadline=0, ts=0, deliveries=1, data=None)
ACKED = {"topic": "q", "acked": 1, "skipped": [], "ready": 0, "in_flight": 0}
SKIPPED = {**ACKED, "acked": 0, "skipped": [1]}
CLAIMED = {"topic": "q", "claimed": [], "count": 0, "ready": 0}
DROPPED = {"topic": "q", "deleted": True, "routers_removed": []}
STORED = {
    "topic": "q", "first_seq": 1, "last_seq": 1, "head_seq": 1, "count": 1, "seqs": [1],
    "created": False, "deduped": False,
}  # fmt: skip

REFUSED = httpx.ConnectError("refused")
LOST = httpx.ReadError("reset")

Reply = httpx.Response | Exception
Does = Callable[[httpx.Request], Reply]


def ok(body: object) -> Reply:
    return httpx.Response(200, json=body)


def refusal(status: int, code: str, **detail: Any) -> Reply:
    said = {"error": {"code": code, "message": f"it is {code}", "detail": detail}}
    return httpx.Response(status, json=said, headers={"retry-after": "1"})


def standby(writer: str = "") -> Reply:
    return refusal(503, "not_writer", **({"writer": writer} if writer else {}))


def behind(body: object, writer: str = A) -> Reply:
    """What a standby answers to one who reads."""
    headers = {"logqueue-behind-ms": "250", "logqueue-writer": writer}
    return httpx.Response(200, json=body, headers=headers)


class Cluster:
    """Servers by URL, each of which answers the same until told otherwise."""

    def __init__(self, **does: Reply | Does) -> None:
        self.does = does
        self.asked: list[str] = []
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        name = request.url.host.partition(".")[0]
        self.asked.append(name)
        reply = self.does[name]
        if not isinstance(reply, httpx.Response | Exception):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply.stream, httpx.ByteStream):
            return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)
        return reply

    def new(self) -> str:
        """Who was asked since the last look."""
        asked, self.asked = "".join(self.asked), []
        return asked


def connect(opened: Opened, cluster: Cluster, urls: Any = (A, B), **more: Any) -> Client:
    return opened(urls, transport=httpx.MockTransport(cluster), **more)


# -- which server a call is sent to --------------------------------------------------------------


def test_the_writer_is_found_and_remembered(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=standby(B), b=ok(DROPPED))
    client = connect(opened, cluster)
    assert client.drop_topic("q").deleted and cluster.new() == "ab"
    assert client.drop_topic("q").deleted and cluster.new() == "b"
    assert not any(naps.taken), "no call waits for what it can ask at once"


@pytest.mark.parametrize(
    "failure",
    [
        REFUSED,
        httpx.ConnectTimeout("slow"),
        standby(),
        refusal(503, "not_ready"),
        refusal(503, "shutting_down"),
    ],
)
def test_what_had_no_effect_is_sent_to_the_next_server(
    opened: Opened, naps: Naps, failure: Reply
) -> None:
    cluster = Cluster(a=failure, b=ok(CLAIMED))
    client = connect(opened, cluster)
    assert client.claim("q").jobs == [] and cluster.new() == "ab"
    assert client.claim("q").jobs == [] and cluster.new() == "b"
    assert not any(naps.taken)


@pytest.mark.parametrize(
    "failure",
    [
        LOST,
        httpx.ReadTimeout("late"),
        refusal(503, "fenced", writer=B),
        refusal(503, "replica_unavailable"),
        httpx.Response(502, text="<html>"),
    ],
)
def test_what_may_have_had_an_effect_is_only_sent_on_where_that_is_safe(
    opened: Opened, failure: Reply
) -> None:
    cluster = Cluster(a=failure, b=ok(CLAIMED))
    client = connect(opened, cluster)
    with pytest.raises(errors.LogqueueError) as caught:
        client.claim("q")
    assert not caught.value.had_no_effect and cluster.new() == "a"
    client.claim("q")
    assert cluster.new() == "b", "the next call begins where the writer may be"

    cluster = Cluster(a=failure, b=ok(SKIPPED))
    settled = connect(opened, cluster).ack("q", JOB)
    assert cluster.new() == "ab"
    assert (settled.skipped, settled.unsure) == ([], [1]), "the first server may have counted it"

    cluster = Cluster(a=failure, b=ok(STORED))
    connect(opened, cluster).append("q", [1])
    assert cluster.new() == "ab"
    first, second = cluster.requests
    assert first.content == second.content and b"idempotency_key" in first.content


def test_an_answer_of_the_writer_is_final(opened: Opened) -> None:
    for code, kind in ((404, errors.TopicNotFound), (409, errors.NotAQueue)):
        cluster = Cluster(a=refusal(code, kind.code), b=ok(CLAIMED))
        with pytest.raises(kind):
            connect(opened, cluster).claim("q")
        assert cluster.new() == "a"


def test_a_writer_without_room_is_asked_again_itself(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=refusal(429, "throttled"), b=ok(CLAIMED))
    with pytest.raises(errors.Throttled, match=r"^it is throttled$"):
        connect(opened, cluster).claim("q")
    assert cluster.new() == "aaaaa"


def test_the_server_that_is_named_comes_before_the_next_in_the_list(opened: Opened) -> None:
    cluster = Cluster(a=standby("HTTP://C.test:4000/"), b=standby(), c=ok(CLAIMED))
    connect(opened, cluster, [A, B, C]).claim("q")
    assert cluster.new() == "ac"


def test_a_server_that_is_not_in_the_list_is_never_called(opened: Opened) -> None:
    cluster = Cluster(a=standby("http://elsewhere.test:4000"), b=standby())
    with pytest.raises(errors.NotWriter) as caught:
        connect(opened, cluster, backoff=Backoff(attempts=2), token="key").claim("q")
    assert cluster.new() == "abba"
    assert "the writer is said to be http://elsewhere.test:4000: add it" in str(caught.value)


def test_a_server_that_names_itself_is_not_asked_for_ever(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=standby(A), b=standby(B))
    with pytest.raises(errors.NotWriter):
        connect(opened, cluster, backoff=Backoff(attempts=3)).claim("q")
    assert len(cluster.new()) == 6 and len([nap for nap in naps.taken if nap]) == 2


# -- rounds --------------------------------------------------------------------------------------


def test_a_takeover_is_waited_for(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=REFUSED, b=standby(A))
    client = connect(opened, cluster)

    def promote() -> None:
        if naps.now > 15.0:
            cluster.does["b"] = ok(DROPPED)

    naps.then = promote
    assert client.drop_topic("q").deleted
    assert cluster.new().endswith("bab"), "rounds begin with the server that answers"
    assert 15.0 < naps.now < 16.1, "a standby that answers is asked each second"


def test_tries_of_a_round_end_when_time_is_up(opened: Opened, naps: Naps) -> None:
    def slow(request: httpx.Request) -> Reply:
        naps.now += 6.0
        return httpx.ReadTimeout("late")

    cluster = Cluster(a=slow, b=slow, c=slow)
    with pytest.raises(LostReply):
        connect(opened, cluster, [A, B, C], backoff=Backoff(total_s=10.0)).topic("q")
    assert cluster.new() == "ab"


def test_a_probe_asks_each_server_once(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=REFUSED, b=refusal(503, "not_ready"))
    with pytest.raises(
        errors.NotReady, match=r"a\.test:4000: refused; http://b\.test:4000 said: it"
    ):
        connect(opened, cluster).ready()
    assert cluster.new() == "ab" and not any(naps.taken)


def test_no_standby_is_promoted_that_was_not_named(opened: Opened) -> None:
    cluster = Cluster(a=ok({"role": "writer", "epoch": 2}), b=ok({"role": "writer", "epoch": 2}))
    with pytest.raises(ValueError, match="use a client with its URL alone"):
        connect(opened, cluster).promote()
    assert cluster.new() == ""
    assert connect(opened, cluster, B).promote().epoch == 2 and cluster.new() == "b"


def test_what_each_server_said_is_in_the_error(opened: Opened) -> None:
    cluster = Cluster(a=REFUSED, b=standby(A))
    with pytest.raises(errors.NotWriter) as caught:
        connect(opened, cluster, backoff=Backoff(attempts=2)).claim("q")
    assert str(caught.value) == (
        f"no writer found: {B} said: it is not_writer; cannot connect to {A}: refused"
    )
    assert caught.value.detail == {"writer": A}
    cluster = Cluster(a=REFUSED, b=httpx.ConnectTimeout("slow"))
    with pytest.raises(Unreachable) as unreachable:
        connect(opened, cluster, backoff=Backoff(attempts=1)).claim("q")
    assert str(unreachable.value) == (
        f"no server answers: cannot connect to {A}: refused; cannot connect to {B}: no connection "
        "within 3 s"
    )
    assert unreachable.value.had_no_effect


def test_an_unknown_effect_is_not_hidden_by_the_other_servers(opened: Opened) -> None:
    cluster = Cluster(a=LOST, b=REFUSED)
    with pytest.raises(LostReply) as caught:
        connect(opened, cluster, backoff=Backoff(attempts=1)).append("q", [1])
    assert not caught.value.had_no_effect and B in str(caught.value)


def test_retry_after_of_a_standby_delays_nothing(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=standby(), b=standby())
    with pytest.raises(errors.NotWriter):
        connect(opened, cluster, backoff=Backoff(attempts=2)).claim("q")
    assert [nap for nap in naps.taken if nap] == pytest.approx([0.1])
    naps.taken.clear()
    cluster = Cluster(a=standby(), b=refusal(503, "not_ready"))
    with pytest.raises(errors.LogqueueError):
        connect(opened, cluster, backoff=Backoff(attempts=2)).claim("q")
    assert [nap for nap in naps.taken if nap] == pytest.approx([1.1])


def test_a_key_that_one_server_does_not_know_is_said_of_that_server(opened: Opened) -> None:
    cluster = Cluster(a=REFUSED, b=refusal(401, "unauthorized"))
    with pytest.raises(
        errors.Unauthorized, match=r"http://b\.test:4000 does not accept the API key"
    ):
        connect(opened, cluster, token="key").topic("q")


def test_what_tls_refuses_is_not_tried_elsewhere(opened: Opened) -> None:
    failure = httpx.ConnectError("tls")
    failure.__cause__ = cause = ssl.SSLCertVerificationError(1, "[SSL]")
    cause.verify_message = "self-signed certificate"
    with pytest.raises(TlsFailed):
        connect(opened, Cluster(a=failure, b=ok(CLAIMED))).claim("q")


# -- reading -------------------------------------------------------------------------------------

TOPICS: dict[str, Any] = {"topics": [], "next_cursor": None}


def test_reads_go_to_the_writer(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(a=behind(TOPICS, B), b=ok(TOPICS))
    client = connect(opened, cluster)
    assert client.topic_page().topics == [] and cluster.new() == "ab"
    assert client.topic_page().topics == [] and cluster.new() == "b"


def test_what_a_standby_does_not_have_the_writer_may_have(opened: Opened) -> None:
    missing = httpx.Response(
        404,
        json={"error": {"code": "topic_not_found", "message": "no"}},
        headers={"logqueue-behind-ms": "9"},
    )
    cluster = Cluster(a=missing, b=ok(DROPPED))
    assert connect(opened, cluster).drop_topic("q").deleted


def test_no_read_is_answered_by_a_standby_unless_it_is_the_only_server_given(
    opened: Opened,
) -> None:
    cluster = Cluster(a=REFUSED, b=behind(TOPICS))
    with pytest.raises(errors.NotWriter, match=f"{B} follows another server"):
        connect(opened, cluster, backoff=Backoff(attempts=1)).topic_page()
    assert connect(opened, cluster, B).topic_page().topics == []


# -- streams -------------------------------------------------------------------------------------


def frame(event: str, said: dict[str, Any], **cursors: int) -> bytes:
    at = base64.urlsafe_b64encode(json.dumps(cursors).encode()).rstrip(b"=").decode()
    return f"id: {at}\nevent: {event}\ndata: {json.dumps(said)}\n\n".encode()


def records(from_seq: int, *seqs: int) -> bytes:
    said = [{"$seq": seq, "$ts": 1, "data": seq} for seq in seqs]
    body = {"topic": "t", "records": said, "from_seq": from_seq, "to_seq": seqs[-1]}
    return frame("record", {**body, "head_seq": 9}, t=seqs[-1])


def job(seq: int, lease: str) -> bytes:
    said = {"topic": "q", "$seq": seq, "lease_id": lease, "deadline": 9, "$ts": 1}
    return f"event: job\ndata: {json.dumps({**said, 'deliveries': 1, 'data': seq})}\n\n".encode()


def session(wid: str, at: int) -> Reply:
    topics = {"t": {"from_seq": at, "head_seq": 9, "earliest_seq": 1}}
    return ok({"wid": wid, "stream_url": "", "session_ttl_ms": 300_000, "topics": topics})


def script(*replies: Reply) -> Does:
    left = [*replies]
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def test_a_watch_goes_on_at_the_new_writer_behind_its_last_frame(
    opened: Opened, naps: Naps
) -> None:
    cluster = Cluster(
        a=script(session("wid_a", 0), event_stream(records(0, 1, 2), LOST), REFUSED),
        b=script(
            standby(A),
            session("wid_b", 2),
            event_stream(records(2, 3), frame("topic-deleted", {"topic": "t"}, t=3)),
        ),
    )
    frames = [*connect(opened, cluster).watch("t")]
    seqs = [[record.seq for record in one.records] for one in frames if isinstance(one, Records)]
    assert seqs == [[1, 2], [3]]
    assert cluster.new() == "aababb"
    sent = [(r.method, r.url.host[0], r.url.path) for r in cluster.requests if r.method == "GET"]
    assert sent == [("GET", "a", "/v0/watch/wid_a"), ("GET", "b", "/v0/watch/wid_b")]
    made = [json.loads(r.content)["topics"]["t"] for r in cluster.requests if r.method == "POST"]
    assert made == [{"from_seq": 0}, *[{"from_seq": 2}] * 3]
    assert [nap for nap in naps.taken if nap] == [0.5, 1.0]


def test_work_goes_on_at_the_new_writer(opened: Opened, naps: Naps) -> None:
    cluster = Cluster(
        a=script(event_stream(job(1, "lease_a"), LOST), REFUSED),
        b=script(standby(A), standby(A), event_stream(job(1, "lease_b"))),
    )
    stream = connect(opened, cluster).work("q")
    first = next(stream)
    interrupted = next(stream)
    second = next(stream)
    assert isinstance(first, Job) and isinstance(second, Job)
    assert isinstance(interrupted, Interrupted) and interrupted.jobs == (first,)
    assert (first.lease_id, second.lease_id) == ("lease_a", "lease_b")
    assert cluster.new() == "ababab"


def test_a_stream_of_a_standby_is_not_taken(opened: Opened) -> None:
    of_standby = event_stream(records(0, 1))
    of_standby.headers["logqueue-behind-ms"] = "10"
    cluster = Cluster(
        a=script(session("wid_a", 0), of_standby),
        b=script(session("wid_b", 0), event_stream(frame("topic-deleted", {"topic": "t"}, t=3))),
    )
    assert len([*connect(opened, cluster).watch("t")]) == 1
    assert cluster.new() == "aabb"


def test_the_silence_of_a_server_that_hangs_is_noticed_soon(opened: Opened) -> None:
    silent = httpx.ReadTimeout("silence")
    cluster = Cluster(a=event_stream(job(1, "lease_a"), silent), b=event_stream(job(1, "lease_b")))
    stream = connect(opened, cluster).work("q")
    with closing(stream):
        kinds = [isinstance(next(stream), Interrupted) for _ in range(3)]
    assert kinds == [False, True, False]
    for request in cluster.requests:
        assert request.url.params["heartbeat_ms"] == "5000"
        assert request.extensions["timeout"]["read"] == 15.0
    for given, sent in ((None, 5000), (30_000, 30_000)):
        cluster = Cluster(a=script(session("wid_a", 0), refusal(401, "unauthorized")))
        with pytest.raises(errors.Unauthorized):
            next(connect(opened, cluster, [A, B]).watch("t", heartbeat_ms=given))
        assert json.loads(cluster.requests[0].content)["heartbeat_ms"] == sent
        assert cluster.requests[1].extensions["timeout"]["read"] == 3 * sent / 1000


def test_servers_that_end_each_stream_at_once_are_not_asked_without_pause(
    opened: Opened, naps: Naps
) -> None:
    ending = [event_stream(b": hb\n\n", LOST) for _ in range(8)]
    cluster = Cluster(a=script(*ending[:4]), b=script(*ending[4:]))
    stream = connect(opened, cluster, reconnect=Backoff(attempts=4)).work("q")
    with pytest.raises(ConnectionFailed):
        list(stream)
    assert cluster.new() == "abab" and len([nap for nap in naps.taken if nap]) == 3


def test_reading_that_follows_goes_on_at_the_new_writer(opened: Opened) -> None:
    page = {
        "topic": "t", "records": [], "next_from_seq": 7, "head_seq": 7, "earliest_seq": 1,
        "caught_up": True, "tombstone": None, "lag": 0,
    }  # fmt: skip
    news = {**page, "records": [{"$seq": 8, "$ts": 1, "data": "news"}], "next_from_seq": 8}
    cluster = Cluster(a=script(ok(page), REFUSED), b=ok(news))
    record = next(iter(connect(opened, cluster).read("t", follow=True)))
    assert record.seq == 8  # type: ignore[union-attr]
    assert json.loads(cluster.requests[-1].content)["from_seq"] == 7


# -- how servers are named -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "urls", [f"{A},{B}", f" {A}/ , {B}", [A, B], (A, f"{B}/"), [A, "http://A.test:4000", B]]
)
def test_ways_to_name_several(opened: Opened, monkeypatch: pytest.MonkeyPatch, urls: Any) -> None:
    cluster = Cluster(a=REFUSED, b=REFUSED)
    with pytest.raises(Unreachable):
        connect(opened, cluster, urls).ready()
    assert cluster.new() == "ab"
    if isinstance(urls, str):
        monkeypatch.setenv("LOGQUEUE_URL", urls)
        with pytest.raises(Unreachable):
            connect(opened, cluster, None).ready()
        assert cluster.new() == "ab"


@pytest.mark.parametrize("urls", [f"{A},", f"{A},b:4000", [A, ""], f"{A};{B}", [A, None]])
def test_one_that_is_no_url_is_refused(opened: Opened, urls: Any) -> None:
    with pytest.raises(ValueError, match="invalid server URL"):
        opened(urls)


@pytest.mark.parametrize("url", ["http://h.test/below", "https://h.test:8443"])
def test_one_url_with_odd_names_is_sent_as_ever(opened: Opened, url: str) -> None:
    cluster = Cluster(h=ok(DROPPED))
    client = connect(opened, cluster, url)
    for name in ("a b", "..", "ä/ö?#%", "x:y"):
        client.drop_topic(name)
    with httpx.Client(base_url=url) as plain:
        for request in cluster.requests:
            path = request.url.raw_path.decode().removeprefix("/below")
            assert request.url == plain.build_request("DELETE", path).url


def test_no_url_at_all_is_refused(opened: Opened) -> None:
    with pytest.raises(ValueError, match="no server URL given"):
        opened([])


def test_a_round_asks_each_server_once_whatever_they_answer() -> None:
    random = Random(13)
    failures: list[Callable[[], errors.LogqueueError]] = [
        lambda: Unreachable("away"),
        lambda: LostReply("lost"),
        lambda: errors.NotReady("soon"),
        lambda: errors.NotWriter("no", {"writer": random.choice((A, B, C, "http://x.test"))}),
        lambda: errors.Fenced("no", {"writer": random.choice((A, B, C))}),
        lambda: errors.NotWriter("no"),
        lambda: errors.Throttled("full"),
        lambda: errors.TopicNotFound("no"),
    ]
    for _ in range(300):
        servers = Servers((A, B, C)[: random.randint(1, 3)])
        for _ in range(3):
            search, asked = servers.search(), list[str]()
            said: list[errors.LogqueueError] = []
            for _ in range(12):
                assert search.url in servers.urls and search.url not in asked
                asked.append(search.url)
                failure = random.choice(failures)()
                is_final = not (failure.retryable and isinstance(failure, ELSEWHERE))
                said.append(failure)
                error = search.failed(failure)
                if is_final:
                    assert error is failure and not search.goes_on
                    assert search.url == asked[-1], "it has answered, so it is the one to ask"
                elif not search.goes_on:
                    assert set(asked) == set(servers.urls), "no wait before each was asked"
                    assert error.had_no_effect == all(one.had_no_effect for one in said)
                if not search.goes_on:
                    asked.clear()
                    said.clear()


def test_a_named_writer_is_read_from_refusals_only() -> None:
    assert writer_of(errors.NotWriter("no", {"writer": A})) == A
    assert writer_of(errors.Fenced("no", {"writer": 7})) == ""
    assert writer_of(errors.NotReady("no", {"writer": A})) == ""
    assert Servers([A]).find("http://a.test:port") is None
    with pytest.raises(ValueError, match="no server URL"):
        Servers([])
