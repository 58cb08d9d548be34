"""httpx, imported when it is first used: half of the time that importing a client would take.

Owns: that delay. Must not know: what is used of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx as httpx
else:

    class _Lazy:
        """A proxy for a module; caches the attributes looked up in it."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            found = getattr(import_module(self._name), attribute)
            setattr(self, attribute, found)
            return found

    httpx = _Lazy("httpx")
