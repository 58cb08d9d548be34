"""The client that a command calls the server with.

Owns: making it from flags and the environment. Must not know: any command.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from logqueue.cli import output
from logqueue.cli.exits import UsageError, in_short
from logqueue.errors import LogqueueError

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.client.backoff import OnRetry

URL_DEFAULT = "http://127.0.0.1:4000"
NODE_BYTES_MAX = 128
RETRY_FOR_S = 30.0
RETRY_FOR_TERMINAL_S = 3.0
SILENT_S = 1.0
"""How long a command waits for a server without a word."""


def url_of(arguments: argparse.Namespace) -> str:
    """Where a command looks for the server: one URL, or several with commas."""
    return getattr(arguments, "url", None) or os.environ.get("LOGQUEUE_URL") or URL_DEFAULT


def node_of(arguments: argparse.Namespace) -> str:
    """Who holds the leases: the same name in each call from this machine, so that one command can
    settle what another one claimed."""
    given: str | None = getattr(arguments, "node", None)
    return given or f"cli@{socket.gethostname()}"[:NODE_BYTES_MAX]


def retry_s_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """How long clients of a command wait and retry, as their keyword arguments.

    A person at a terminal learns soon that no server answers; a script outlives a restart.
    """
    from logqueue.client import Backoff

    total_s = arguments.retry_for
    if total_s is None:
        total_s = RETRY_FOR_TERMINAL_S if sys.stderr.isatty() else RETRY_FOR_S
    timeout_s = arguments.call_timeout
    on_retry = _note_once(url_of(arguments), total_s)
    return {
        "backoff": Backoff(total_s=total_s, on_retry=on_retry),
        **({} if timeout_s is None else {"timeout_s": timeout_s}),
    }


def _note_once(url: str, total_s: float) -> OnRetry:
    """Says on stderr, once, what the command waits for and until when."""
    from logqueue.client.backoff import AWAY

    is_noted = False

    def note(error: LogqueueError, tried_s: float, delay_s: float) -> None:
        nonlocal is_noted
        is_away = error.status == 0 or isinstance(error, AWAY)
        if is_noted or not is_away or tried_s + delay_s < SILENT_S:
            return
        is_noted = True
        until = datetime.now() + timedelta(seconds=max(total_s - tried_s, 0.0))
        why = output.printable(in_short(error, url))
        output.say(f"logqueue: {why}; retrying until {until:%H:%M:%S} (--retry-for)")

    return note


def connect(arguments: argparse.Namespace) -> Client:
    """A client; nothing is sent yet.

    Raises:
        UsageError: The URL, the key or a time is invalid.
    """
    from logqueue.client import Client

    try:
        return Client(
            arguments.url, arguments.token, node=node_of(arguments), **retry_s_of(arguments)
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
