"""The times that a calendar has.

Owns: their bounds. Must not know: what is done about others; for rows that is `rows.moments`.
"""

from __future__ import annotations

from typing import Final

FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""Of the years 1 and 9999, in ms since the epoch: Python and SQL have no dates outside of them."""

BEYOND_US: Final = LAST_MS * 1000 + 999
"""In archives, for any later time: the last microsecond of the year 9999, which no time in whole
milliseconds is. So any reader can show it, and a job that waits for it is not taken for ready."""
