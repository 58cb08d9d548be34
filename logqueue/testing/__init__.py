"""Tests for your workers: a server in memory, or the real one, as a fixture.

Owns: the names that tests import. Must not know: the tests. They load when they are first used,
since pytest loads the plugin of this package wherever it is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from logqueue.extras import explained

if TYPE_CHECKING:
    from logqueue.testing.memory import MemoryServer as MemoryServer
    from logqueue.testing.memory import MemoryWorker as MemoryWorker
    from logqueue.testing.process import ServerProcess as ServerProcess

_HOMES = {"MemoryServer": "memory", "MemoryWorker": "memory", "ServerProcess": "process"}

__all__ = ["MemoryServer", "MemoryWorker", "ServerProcess"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with explained(f"logqueue.testing.{name}", "server"):
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
