"""Asking the writer of a replica to hand over, as a standby does before it takes over.

Owns: that one request to another server. Must not know: what either of them does then.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

TIMEOUT_S: Final = 30.0
PATH: Final = "/v0/replica/hand_over"


class HandOverFailed(Exception):
    """The writer did not hand over; the message says why."""


def ask_to_hand_over(address: str, authorization: str | None) -> None:
    """Ask a writer to hand over, and wait until it has. Blocks.

    Args:
        address: Its base URL.
        authorization: The header to send; None for none.

    Raises:
        HandOverFailed: It did not, or whether it did is unknown.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise HandOverFailed(f"its address '{address}' is not a URL")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    headers = {"content-type": "application/json"}
    if authorization is not None:
        headers["authorization"] = authorization
    connection = kind(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("POST", parts.path.rstrip("/") + PATH, b"{}", headers)
        reply = connection.getresponse()
        body = reply.read()
    except (OSError, HTTPException, ValueError) as error:
        raise HandOverFailed(f"it cannot be reached: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if reply.status != 200:
        raise HandOverFailed(f"it says {reply.status}: {_message(body)}")


def _message(body: bytes) -> str:
    try:
        reply = json.loads(body)
        return str(reply["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
