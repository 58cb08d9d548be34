"""`logqueue sqs-credentials`: what clients of SQS are configured with.

Owns: its output. Must not know: how credentials are derived. Calls no server.
"""

from __future__ import annotations

import argparse
import os

from logqueue.cli import output
from logqueue.cli.arguments import Commands, add_address, add_json
from logqueue.cli.connection import url_of
from logqueue.cli.exits import UsageError


def add_to(commands: Commands) -> None:
    """Declare the command."""
    credentials = commands.add(
        "sqs-credentials",
        _credentials,
        "show the credentials of an API key for clients of Amazon SQS",
        more="They are derived from the secret of the key; no server is called. The server must "
        "run with --sqs.",
        examples=("LOGQUEUE_TOKEN=the-secret logqueue sqs-credentials",),
    )
    add_address(credentials)
    add_json(credentials)


def _credentials(arguments: argparse.Namespace) -> int:
    from logqueue.server.auth import signing_credentials

    secret = getattr(arguments, "token", None) or os.environ.get("LOGQUEUE_TOKEN") or ""
    if not secret:
        raise UsageError("no API key: set LOGQUEUE_TOKEN, or give --token")
    access_key_id, secret_access_key = signing_credentials(secret)
    members = {
        "AWS_ACCESS_KEY_ID": access_key_id,
        "AWS_SECRET_ACCESS_KEY": secret_access_key,
        "AWS_ENDPOINT_URL_SQS": url_of(arguments).split(",")[0].rstrip("/") + "/sqs",
    }
    if arguments.json:
        output.json_line(members)
    else:
        for name, value in members.items():
            output.line(f"{name}={value}")
    return 0
