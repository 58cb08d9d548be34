"""Arrow without pandas, for processes that are ours alone.

Owns: that. Must not know: what Arrow is used for.

Arrow imports pandas, where it is installed, when it makes its first array of Python values, in case
they are pandas' own. That takes as long as the whole report of a small log.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def import_arrow() -> None:
    """Import Arrow, and have it believe that there is no pandas. Does nothing where either has been
    imported: then a program uses them, and they stay as they are."""
    if "pyarrow" in sys.modules or "pandas" in sys.modules:
        return
    hidden = _WithoutPandas()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _WithoutPandas(MetaPathFinder):
    """Finds that pandas is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)
        return None
