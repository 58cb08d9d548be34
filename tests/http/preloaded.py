"""What `forked.py` has in memory before the first server is forked."""

from __future__ import annotations

import logqueue.cli.serving
import logqueue.server.serve
from logqueue.api import openapi

__all__ = ["logqueue"]

openapi.encoded()
