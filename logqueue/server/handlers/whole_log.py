"""Who may see what belongs to all topics at once."""

from __future__ import annotations

from logqueue.errors import Forbidden
from logqueue.server.auth import Key


def require_everything(key: Key | None) -> None:
    """Segments and backups hold records of all topics, and the server serves all of them.

    Raises:
        Forbidden: The key is limited to some names.
    """
    if key is not None and key.prefixes:
        raise Forbidden(
            "this concerns all topics: it needs a key that is not limited to name prefixes"
        )
