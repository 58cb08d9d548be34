"""What a connection does with an answer whose client has gone meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from logqueue.core.results import ClaimedJobs
from logqueue.server.engine.pending import Pending
from logqueue.server.http.exchange import HttpExchange
from logqueue.server.http.requests import HttpRequest, Reply


class Line:
    """A connection, the server behind it, and what was written."""

    def __init__(self, reply: Reply, is_closing: bool) -> None:
        self.reply = reply
        self.closing = is_closing
        self.written = b""
        self.api = self
        self.service = SimpleNamespace(lifecycle=SimpleNamespace(following=None))

    def answer(self, request: object, route: object) -> Reply:
        return self.reply

    def leave(self, request: object, status: int) -> None: ...

    def write_reply(self, exchange: object, reply: Reply, is_head: bool) -> bool:
        if not self.closing:
            self.written += reply.body
        return not self.closing

    def reply_due(self, exchange: HttpExchange) -> None:
        exchange.deliver()

    def on_response_complete(self, exchange: object) -> None: ...


class Asked:
    """A whole request, and its route."""

    body = b""
    stream = None
    ignored = ()
    method = "POST"


@pytest.mark.parametrize("how", ["here", "closing", "disconnected"])
def test_an_answer_that_can_not_be_sent_is_told_so(how: str) -> None:
    lost: list[str] = []
    reply = Reply(b"{}")
    reply.on_undelivered = lambda: lost.append(how)
    line: Any = Line(reply, is_closing=how == "closing")
    asked: Any = Asked()
    short = HttpExchange(line, keep_alive=True)
    short.request = short.route = asked
    short.disconnected = how == "disconnected"
    short.answer(b"")
    assert bool(line.written) == (how == "here")
    assert bool(lost) == (how != "here")


def test_what_is_logged_of_a_request_has_no_secrets_and_no_payloads() -> None:
    """Event loops log callbacks with the objects that they belong to."""
    line: Any = Line(Reply(b"private"), is_closing=False)
    exchange = HttpExchange(line, keep_alive=True)
    headers = [(b"authorization", b"Bearer private")]
    exchange.request = HttpRequest("POST", b"/v0/topics/t", b"token=private", headers, exchange)
    pending: Pending[Reply] = Pending(line, lambda context, result, spent: Reply(b""), "private")
    jobs = ClaimedJobs([1], [1], 0, data=[b"private"])
    for thing in (exchange, exchange.request, Reply(b"private"), pending, jobs):
        assert "private" not in f"{thing} {thing!r} {[thing]}", type(thing)
