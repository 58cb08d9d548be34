"""Calls about background operations of the server.

Owns: their parameters and what they mean. Must not know: how a call is made, what operations do.
"""

from __future__ import annotations

from collections.abc import Sequence

from logqueue.client.calls import Answer, Call, call, read_shape, request
from logqueue.client.endpoints import GET_OPERATION, LIST_OPERATIONS, STOP_OPERATION
from logqueue.shapes import BackgroundList, BackgroundReply, BackgroundStatus


def operations() -> Call[list[BackgroundStatus]]:
    """The background operations that the server remembers, the latest first: 100 at most."""

    def read(answers: Sequence[Answer]) -> list[BackgroundStatus]:
        return read_shape(answers[0], BackgroundList).operations

    return Call((request(LIST_OPERATIONS),), read)


def operation(operation: str) -> Call[BackgroundReply]:
    """One background operation, and how far it is.

    Raises:
        NotFound: The server does not know it, or not any longer.
    """
    return call(GET_OPERATION, operation)


def stop_operation(operation: str) -> Call[BackgroundReply]:
    """Stop a background operation before its next step; what it has done stays done.

    Raises:
        NotFound: The server does not know it, or not any longer.
    """
    return call(STOP_OPERATION, operation)
