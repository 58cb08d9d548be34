"""What a connection does with an answer whose client has gone meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.server.http.exchange import HttpExchange
from logqueue.server.http.requests import Reply


class Line:
    """A connection, the server behind it, and what was written."""

    def __init__(self, reply: Reply, is_closing: bool) -> None:
        self.reply = reply
        self.closing = is_closing
        self.written = b""
        self.api = self

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
