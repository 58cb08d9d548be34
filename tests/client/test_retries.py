"""Which failures are tried again, how long after, and how often."""

from __future__ import annotations

import json
import socket
import ssl
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from logqueue import errors
from logqueue.client import (
    Backoff,
    Client,
    GatewayFailed,
    LostReply,
    TlsFailed,
    UnexpectedReply,
    Unreachable,
    connecting,
)
from logqueue.client.backoff import Attempts
from logqueue.client.failures import refusal
from logqueue.errors import LogqueueError, every_error
from logqueue.shapes import Job, Record
from tests.client.either import Naps, Opened

JOB = Job(seq=1, lease_id="lease_1", deadline=0, ts=0, deliveries=1, data=None)
CLAIMED = {"topic": "q", "claimed": [], "count": 0, "ready": 0}
ACKED = {"topic": "q", "acked": 0, "skipped": [1], "ready": 0, "in_flight": 0}
DROPPED = {"topic": "q", "deleted": True, "routers_removed": []}

Reply = httpx.Response | Exception


class Server:
    """Answers from a list; the last answer again and again."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = [*replies]
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)


def error(status: int, code: str, after: str | None = None, **detail: Any) -> httpx.Response:
    headers = {"retry-after": after} if after is not None else {}
    body = {"error": {"code": code, "message": "why", **({"detail": detail} if detail else {})}}
    return httpx.Response(status, json=body, headers=headers)


def connect(opened: Opened, server: Server, **more: Any) -> Client:
    return opened("http://queue.test", transport=httpx.MockTransport(server), **more)


def claim(client: Client) -> object:
    return client.claim("q")


def ack_with_lease(client: Client) -> object:
    return client.ack("q", JOB)


def ack_without_lease(client: Client) -> object:
    return client.ack("q", 1)


BUSY = error(429, "throttled", "1", limit="max_topics", max=1)
LOST = httpx.ReadError("reset")
LATE = httpx.ReadTimeout("late")
REFUSED = httpx.ConnectError("refused")


@pytest.mark.parametrize(
    ("call", "failure", "is_repeated"),
    [
        (claim, BUSY, True),
        (claim, error(503, "not_ready", "1"), True),
        (claim, error(503, "shutting_down", "1"), True),
        (claim, REFUSED, True),
        (claim, httpx.ConnectTimeout("slow"), True),
        (claim, LOST, False),
        (claim, LATE, False),
        (claim, httpx.RemoteProtocolError("Server disconnected"), False),
        (claim, httpx.Response(502, text="<html>"), False),
        (claim, error(500, "internal"), False),
        (claim, error(409, "not_a_queue"), False),
        (claim, error(404, "topic_not_found"), False),
        (ack_with_lease, LOST, True),
        (ack_with_lease, LATE, True),
        (ack_with_lease, httpx.WriteError("broken pipe"), True),
        (ack_with_lease, httpx.Response(502, text="<html>"), True),
        (ack_with_lease, error(500, "internal"), False),
        (ack_with_lease, error(500, "internal", reason="storage_full"), True),
        (ack_with_lease, error(500, "internal", reason="storage_read_only"), False),
        (ack_without_lease, LOST, False),
        (ack_without_lease, BUSY, True),
        (lambda client: client.drop_topic("q"), LOST, True),
        (lambda client: client.drop_topic("q"), error(409, "topic_not_empty"), False),
        (lambda client: client.append("q", [1]), LOST, True),
        (lambda client: client.append("q", [1]), error(422, "topic_full"), True),
        (lambda client: client.append("q", [1]), error(400, "record_too_large"), False),
        (lambda client: client.purge("q", ["ready"]), LOST, False),
        (lambda client: client.cancel_key("q", "k"), LOST, False),
        (lambda client: client.cancel("q", 1), LOST, True),
        (lambda client: client.redrive("q"), LOST, False),
        (lambda client: client.redrive("q", seqs=[1]), LOST, True),
        (lambda client: client.delete_records("q", match="a"), LOST, False),
        (lambda client: client.delete_records("q", before_seq=5), LOST, True),
        (lambda client: client.ready(), error(503, "not_ready", "1"), False),
        (lambda client: client.health(), REFUSED, False),
        (lambda client: client.topic("q"), httpx.Response(404, text="nginx"), False),
        (lambda client: client.topic("q"), error(404, "brand_new"), False),
    ],
)
def test_only_what_is_safe_is_repeated(
    opened: Opened, call: Callable[[Client], object], failure: Reply, is_repeated: bool
) -> None:
    server = Server(failure)
    with pytest.raises(LogqueueError):
        call(connect(opened, server, backoff=Backoff(attempts=3)))
    assert len(server.requests) == (3 if is_repeated else 1)
    assert len({request.content for request in server.requests}) == 1, "the very same again"


def test_delays_grow_and_end(opened: Opened, naps: Naps) -> None:
    client = connect(
        opened, Server(REFUSED), backoff=Backoff(attempts=6, first_s=0.1, factor=2, cap_s=0.5)
    )
    with pytest.raises(Unreachable):
        client.topic("q")
    assert naps.taken == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


def test_each_wait_is_told(opened: Opened, naps: Naps) -> None:
    told: list[tuple[str, float, float]] = []
    patient = Backoff(
        attempts=3,
        on_retry=lambda error, spent, delay: told.append(
            (error.code, round(spent, 6), round(delay, 6))
        ),
    )
    with pytest.raises(Unreachable):
        connect(opened, Server(REFUSED), backoff=patient).topic("q")
    assert told == [("unreachable", 0.0, 0.1), ("unreachable", 0.1, 0.2)]


def test_delays_are_drawn_from_their_upper_half() -> None:
    for chance, delay in ((0.0, 0.5), (0.5, 0.75), (0.999, 0.9995)):
        attempts = Attempts(Backoff(first_s=1.0), lambda: 0.0, [chance].pop)
        assert attempts.delay_after(Unreachable("x"), False) == pytest.approx(delay)


def test_the_server_says_how_long_to_wait(opened: Opened, naps: Naps) -> None:
    full = error(429, "throttled", "7")
    client = connect(opened, Server(full, full, httpx.Response(200, json=DROPPED)))
    assert client.drop_topic("q").deleted
    assert naps.taken == pytest.approx([7.1, 7.2])


def test_tries_end_when_time_is_up(opened: Opened, naps: Naps) -> None:
    server = Server(error(503, "not_ready", "20"))
    client = connect(opened, server, backoff=Backoff(attempts=None, total_s=50.0))
    with pytest.raises(errors.NotReady) as caught:
        client.topic("q")
    assert len(server.requests) == 3 and naps.now < 50
    assert caught.value.retry_after_s == 20


def test_reading_that_follows_waits_for_the_server_as_streams_do(
    opened: Opened, naps: Naps
) -> None:
    page = {
        "topic": "t", "records": [], "next_from_seq": 7, "head_seq": 7, "earliest_seq": 1,
        "caught_up": True, "tombstone": None, "lag": 0,
    }  # fmt: skip
    news = {**page, "records": [{"$seq": 8, "$ts": 1, "data": "news"}], "next_from_seq": 8}
    away = [REFUSED] * 20
    server = Server(
        httpx.Response(200, json=page), *away, LOST, httpx.Response(200, json=news), REFUSED
    )
    client = connect(opened, server, backoff=Backoff(attempts=2))
    record = next(iter(client.read("t", follow=True)))
    assert isinstance(record, Record) and record.data == "news"
    assert len(naps.taken) == 21
    asked = [json.loads(request.content)["from_seq"] for request in server.requests]
    assert asked == [0, *[7] * 22]


def test_reading_that_follows_gives_up_a_server_that_was_never_there(opened: Opened) -> None:
    server = Server(REFUSED)
    with pytest.raises(Unreachable):
        next(iter(connect(opened, server, backoff=Backoff(attempts=2)).read("t", follow=True)))
    assert len(server.requests) == 2


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_s": -1.0}, {"factor": 0.5}])
def test_a_backoff_without_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Backoff(**wrong)


def test_delays_do_not_overflow() -> None:
    attempts = Attempts(Backoff(attempts=None, total_s=None), lambda: 0.0, lambda: 1.0)
    for _ in range(5000):
        delay = attempts.delay_after(Unreachable("x"), True)
    assert delay == 5.0


def test_a_settle_that_lost_a_reply_says_what_it_can_not_know(opened: Opened) -> None:
    skipped = httpx.Response(200, json=ACKED)
    settled = connect(opened, Server(skipped)).ack("q", JOB)
    assert (settled.skipped, settled.unsure) == ([1], [])
    settled = connect(opened, Server(BUSY, REFUSED, skipped)).ack("q", JOB)
    assert (settled.skipped, settled.unsure) == ([1], []), "neither had an effect"
    settled = connect(opened, Server(LOST, skipped)).ack("q", JOB)
    assert (settled.counted, settled.skipped, settled.unsure) == ([], [], [1])


REFUSALS = [kind for kind in every_error() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", REFUSALS, ids=lambda kind: kind.__name__)
def test_every_refusal_comes_back_as_its_class(kind: type[LogqueueError]) -> None:
    reasons: dict[type[LogqueueError], str] = {
        errors.StorageReadOnly: "storage_read_only",
        errors.StorageFull: "storage_full",
        errors.StorageUnreadable: "storage_unreadable",
    }
    detail = {"reason": reasons.get(kind, "other")}
    body = httpx.Response(
        1, json={"error": {"code": kind.code, "message": "why", "detail": detail}}
    ).content
    decoded = refusal(kind.status, body, None)
    assert type(decoded) is kind
    assert (decoded.message, decoded.detail) == ("why", detail)
    assert decoded.retry_after_s == kind.retry_after_s


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"<html>", UnexpectedReply),
        (418, b'{"error":{"code":"teapot","message":"m"}}', UnexpectedReply),
        (500, b'{"error":"text"}', UnexpectedReply),
        (502, b"", GatewayFailed),
        (429, b"slow down", GatewayFailed),
        (504, b"\xff", GatewayFailed),
    ],
)
def test_other_replies_are_not_taken_for_the_servers(
    status: int, body: bytes, kind: type[UnexpectedReply]
) -> None:
    decoded = refusal(status, body, "soon")
    assert type(decoded) is kind
    assert decoded.detail == {"status": status} and str(status) in decoded.message


def test_timeouts_leave_room_for_what_the_call_waits_for(opened: Opened) -> None:
    server = Server(httpx.Response(200, json=CLAIMED))
    connect(opened, server, timeout_s=4.0).claim("q", wait_ms=20_000)
    assert server.requests[0].extensions["timeout"]["read"] == 24.0


def test_address_and_key_come_from_the_environment(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(httpx.Response(200, json=DROPPED))
    transport = httpx.MockTransport(server)
    monkeypatch.setenv("LOGQUEUE_URL", "http://from.env:1/below/")
    monkeypatch.setenv("LOGQUEUE_TOKEN", "env")
    opened(transport=transport).drop_topic("q")
    opened("http://given.test", "key", transport=transport).drop_topic("q")
    opened(token="", transport=transport).drop_topic("q")
    monkeypatch.delenv("LOGQUEUE_URL")
    opened(transport=transport).drop_topic("q")
    told = [(str(r.url), r.headers.get("authorization")) for r in server.requests]
    assert told == [
        ("http://from.env:1/below/v0/topics/q", "Bearer env"),
        ("http://given.test/v0/topics/q", "Bearer key"),
        ("http://from.env:1/below/v0/topics/q", None),
        ("http://127.0.0.1:4000/v0/topics/q", "Bearer env"),
    ]


@pytest.mark.parametrize("url", ["localhost:4000", "ftp://x", "http://", "/v0"])
def test_what_is_no_url_is_refused(opened: Opened, url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        opened(url)


@pytest.mark.parametrize("token", ["a\nb", "schlüssel"])
def test_what_is_no_token_is_refused(opened: Opened, token: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        opened(token=token)


def test_a_lost_claim_says_so(opened: Opened) -> None:
    with pytest.raises(LostReply) as caught:
        connect(opened, Server(LATE)).claim("q")
    assert not caught.value.had_no_effect and caught.value.retryable
    with pytest.raises(Unreachable) as unreachable:
        connect(opened, Server(REFUSED)).claim("q")
    assert unreachable.value.had_no_effect


def slow_to_fail(naps: Naps, server: Server, seconds: float) -> Callable[..., httpx.Response]:
    """Each request takes so long, by the client's clock."""

    def reply(request: httpx.Request) -> httpx.Response:
        naps.now += seconds
        return server(request)

    return reply


STORED = {
    "topic": "q", "first_seq": 1, "last_seq": 1, "head_seq": 1, "count": 1, "seqs": [1],
    "created": False, "deduped": False,
}  # fmt: skip


def test_a_default_client_repeats_a_call_that_timed_out(opened: Opened, naps: Naps) -> None:
    server = Server(LATE, LATE, httpx.Response(200, json=STORED))
    client = opened(
        "http://queue.test",
        transport=httpx.MockTransport(slow_to_fail(naps, server, connecting.TIMEOUT_S)),
    )
    assert client.append("q", [1]).seqs == [1]
    assert len({request.content for request in server.requests}) == 1, "with one idempotency key"


@pytest.mark.parametrize("failure", [REFUSED, LOST, error(503, "not_ready", "1")])
def test_a_default_client_outlives_a_server_that_is_away_for_30_s(
    opened: Opened, naps: Naps, failure: Reply
) -> None:
    with pytest.raises(LogqueueError):
        connect(opened, Server(failure)).append("q", [1])
    assert 30.0 < naps.now < 60.0


def test_a_running_server_that_has_no_room_is_not_asked_for_that_long(
    opened: Opened, naps: Naps
) -> None:
    server = Server(error(422, "topic_full"))
    with pytest.raises(errors.TopicFull):
        connect(opened, server).append("q", [1])
    assert len(server.requests) == 5 and naps.now < 5.0
    server = Server(error(422, "topic_full"))
    with pytest.raises(errors.TopicFull):
        connect(opened, server, backoff=Backoff(refusals=2)).append("q", [1])
    assert len(server.requests) == 2


def test_connections_are_refused_soon(opened: Opened) -> None:
    server = Server(httpx.Response(200, json=DROPPED))
    connect(opened, server).drop_topic("q")
    connect(opened, server, connect_timeout_s=0.5).drop_topic("q")
    told = [request.extensions["timeout"]["connect"] for request in server.requests]
    assert told == [3.0, 0.5]


# -- what failures say ---------------------------------------------------------------------------


def caused_by(cause: Exception) -> httpx.ConnectError:
    """As httpx raises it."""
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = cause
    return error


def certificate_error() -> ssl.SSLCertVerificationError:
    """What a certificate of somebody else leads to."""
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (caused_by(socket.gaierror(-2, "Name or service not known")), "cannot resolve the host"),
        (caused_by(ConnectionRefusedError(111, "Connect call failed")), ": connection refused"),
        (
            caused_by(ExceptionGroup("several", [ConnectionRefusedError(111, "x")])),
            ": connection refused",
        ),
        (httpx.ConnectTimeout(""), "no connection within 3 s"),
        (LATE, "timeout_s is 10"),
        (LOST, "broke before the reply: reset"),
    ],
)
def test_failures_say_their_cause_in_one_line_without_the_transports_traceback(
    opened: Opened, failure: Exception, said: str
) -> None:
    with pytest.raises(LogqueueError) as caught:
        connect(opened, Server(failure), backoff=Backoff(attempts=1)).topic("q")
    assert said in str(caught.value) and "http://queue.test" in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert "httpx" not in shown.replace("httpx/", "") and "direct cause" not in shown


def test_what_tls_refuses_is_not_tried_again(opened: Opened) -> None:
    server = Server(caused_by(certificate_error()))
    with pytest.raises(TlsFailed, match="certificate rejected: self-signed certificate"):
        connect(opened, server).topic("q")
    assert len(server.requests) == 1


SECRET = "s3cr3t-key"


@pytest.mark.parametrize(
    "token", [f"{SECRET}\x00", f"{SECRET}\nx", f"{SECRET} {SECRET}", "ö" + SECRET]
)
def test_a_bad_key_is_never_repeated(opened: Opened, token: str) -> None:
    with pytest.raises(ValueError, match="invalid API key") as caught:
        opened(token=token)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_no_key_shows_up_in_errors(opened: Opened) -> None:
    illegal = httpx.LocalProtocolError(f"Illegal header value b'Bearer {SECRET}'")
    with pytest.raises(UnexpectedReply) as caught:
        connect(opened, Server(illegal), token=SECRET).topic("q")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(connecting.Address.of(None, SECRET, None, 1.0, 1.0))
    with pytest.raises(ValueError, match="token=") as refused:
        opened(f"http://user:{SECRET}@queue.test")
    assert SECRET not in str(refused.value)


def test_the_newline_of_a_key_file_is_no_part_of_the_key(opened: Opened) -> None:
    server = Server(httpx.Response(200, json=DROPPED))
    connect(opened, server, token=f"{SECRET}\n").drop_topic("q")
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


def test_a_missing_key_is_told_from_a_wrong_one(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(error(401, "unauthorized"))
    with pytest.raises(errors.Unauthorized, match="no API key was sent"):
        connect(opened, server).topic("q")
    with pytest.raises(errors.Unauthorized, match="does not accept the API key"):
        connect(opened, server, token=SECRET).topic("q")
