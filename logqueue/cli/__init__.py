"""The `logqueue` command.

Owns: the name that the installed script calls. Must not know: any command.
"""

from logqueue.cli.main import main

__all__ = ["main"]
