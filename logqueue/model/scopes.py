"""What a key may do, and what an operation needs.

Must not know: keys, requests, operations.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Scope(IntFlag):
    """What a key may do. No scope includes another."""

    READ = 1
    WRITE = 2
    DELETE = 4
    ADMIN = 8


NO_SCOPE: Final = Scope(0)
ALL_SCOPES: Final = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN
