"""That a state contradicts itself.

Owns: the error. Must not know: what is checked.
"""

from __future__ import annotations


class Contradiction(Exception):
    """A state says two things that cannot both be; the message says where.

    Raised, not asserted: `logqueue check` rests on it, and assertions can be switched off.
    """
