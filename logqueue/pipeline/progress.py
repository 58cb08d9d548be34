"""How jobs of the pipeline say how far they are.

Owns: the type of that call, and the one that says nothing. Must not know: who listens.
"""

from __future__ import annotations

from collections.abc import Callable

Note = Callable[[str, float | None], None]
"""Called with the present step, and the share of it that is done (0 to 1; None: unknown)."""


def silent(text: str, share: float | None) -> None:
    """Say nothing."""
