"""Files of other projects that pages need, as they were published, with their licences.

Owns: where they are. Must not know: which page uses them. `vendor.json` names each file's version,
licence, source and SHA-256.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable


def folder() -> Traversable:
    """The folder with the files, their licences and `vendor.json`."""
    return files(__package__) / "files"


def text(name: str) -> str:
    """The text of a file.

    Raises:
        FileNotFoundError: There is no such file.
    """
    return folder().joinpath(name).read_text(encoding="utf-8")
