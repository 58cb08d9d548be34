"""How much a run of the tests may cost: `make test` is short, `make test-all` is thorough.

LOGQUEUE_TEST_EFFORT is 1 by default, 2 in `make test-all`; higher numbers repeat what is random
more often. Tests marked `slow` run from 2 on.
"""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("LOGQUEUE_TEST_EFFORT", "1"))
IS_THOROUGH = EFFORT > 1


def scaled(short: int, thorough: int) -> int:
    """How often something random is done.

    Args:
        short: In `make test`, where every part of it must still happen.
        thorough: In `make test-all`; multiplied by what LOGQUEUE_TEST_EFFORT asks for beyond.
    """
    return thorough * (EFFORT - 1) if IS_THOROUGH else short


def swept(first: int, end: int, *, offset: int, every: int = 24) -> range:
    """The steps of a sweep, such as the operations to crash at: all of them in `make test-all`.

    Args:
        offset: Where `make test` begins; give each case of a table another one, so that together
            they come by everywhere.
        every: How far apart its steps are.
    """
    return range(first, end) if IS_THOROUGH else range(first + offset % every, end, every)
