"""The client that a command calls the server with.

Owns: making it from flags and the environment. Must not know: any command.
"""

from __future__ import annotations

import argparse
import os
import socket
from typing import TYPE_CHECKING

from logqueue.cli.ending import UsageError

if TYPE_CHECKING:
    from logqueue.client import Client

URL_DEFAULT = "http://127.0.0.1:4000"
NODE_BYTES_MAX = 128


def url_of(arguments: argparse.Namespace) -> str:
    """Where a command looks for the server."""
    return getattr(arguments, "url", None) or os.environ.get("LOGQUEUE_URL") or URL_DEFAULT


def node_of(arguments: argparse.Namespace) -> str:
    """Who holds the leases: the same name in each call from this machine, so that one command can
    settle what another one claimed."""
    given: str | None = getattr(arguments, "node", None)
    return given or f"cli@{socket.gethostname()}"[:NODE_BYTES_MAX]


def connect(arguments: argparse.Namespace) -> Client:
    """A client; nothing is sent yet.

    Raises:
        UsageError: The URL or the key can not be one.
    """
    from logqueue.client import Client

    try:
        return Client(arguments.url, arguments.token, node=node_of(arguments))
    except ValueError as error:
        raise UsageError(str(error)) from error
