"""URLs and ARNs of queues: how they are made and read.

Must not know: actions, which queues there are.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from logqueue.errors import HIDDEN, quoted
from logqueue.server.http.requests import HttpRequest
from logqueue.server.sqs.refusals import INVALID_ADDRESS, INVALID_PARAMETER, SqsRefusal
from logqueue.server.sqs.signing import region_of

ACCOUNT: Final = "000000000000"
"""Accounts do not exist here; every URL and ARN names this one, and any other is accepted."""
PATH: Final = "/sqs"
_ARN: Final = re.compile(r"arn:aws[a-z-]*:sqs:[^:]*:[^:]*:(.+)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", re.ASCII)
FIFO: Final = ".fifo"


class Addresses:
    """What the queues of this server are called in one request's replies."""

    def __init__(self, request: HttpRequest, advertised: str | None) -> None:
        self._request = request
        self._advertised = advertised

    def url(self, queue: str) -> str:
        """The URL of a queue."""
        return f"{self._base()}{PATH}/{ACCOUNT}/{queue}"

    def arn(self, queue: str) -> str:
        """The ARN of a queue, in the region that the request was signed for."""
        if not self._request.allows(queue):
            queue = HIDDEN
        return f"arn:aws:sqs:{region_of(self._request)}:{ACCOUNT}:{queue}"

    def _base(self) -> str:
        if self._advertised is not None:
            return self._advertised
        for name, value in self._request.headers:
            if name == b"host":
                return "http://" + value.decode("ascii", "replace")
        return ""


def queue_of_url(url: str) -> str:
    """The queue that a URL names: what is behind the last slash.

    Raises:
        SqsRefusal: It names none.
    """
    name = unquote(url.rpartition("/")[2])
    if not name:
        raise SqsRefusal(INVALID_ADDRESS, f"the address {quoted(url[:80])} is not valid")
    return name


def queue_of_arn(arn: object, parameter: str) -> str:
    """The queue that an ARN names.

    Raises:
        SqsRefusal: It is not the ARN of a queue.
    """
    found = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    if found is None:
        raise SqsRefusal(
            INVALID_PARAMETER,
            f"{parameter} must be the ARN of a queue, such as arn:aws:sqs:REGION:{ACCOUNT}:NAME",
        )
    return found[1]


def require_queue_name(name: str) -> None:
    """Check the name of a queue that is to be created.

    Raises:
        SqsRefusal: It breaks the rules of SQS, or of topics.
    """
    stem = name.removesuffix(FIFO)
    if len(name) > 80 or _NAME.fullmatch(stem) is None:
        raise SqsRefusal(
            INVALID_PARAMETER,
            "the name of a queue must be 1 to 80 of A-Z a-z 0-9 - _ beginning with a letter or "
            "digit; only that of a FIFO queue ends with .fifo",
        )
