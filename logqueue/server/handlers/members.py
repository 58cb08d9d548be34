"""Replies made of plain members, with the performance block that every reply has.

Must not know: which members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from logqueue.api import replies
from logqueue.server.engine.pending import Spent
from logqueue.server.http.requests import HttpRequest, Reply


def reply_with(request: HttpRequest, members: Mapping[str, Any], status: int = 200) -> Reply:
    """The reply that has these members."""
    body = {**members, "performance": msgspec.Raw(replies.performance(request.began))}
    return Reply(replies.encode(body), status)


def show_members(request: HttpRequest, members: Mapping[str, Any], spent: Spent) -> Reply:
    """The same for members that are the result."""
    return reply_with(request, members)
