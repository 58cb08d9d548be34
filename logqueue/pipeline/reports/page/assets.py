"""The style sheet and the scripts of the page, read from their files.

Owns: which files they are, in which order. Must not know: what is on the page.

The page is whole without the scripts, which read the page's data and its tables.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from logqueue import vendored

_SCRIPTS = ("state.js", "plots.js", "page.js")


@cache
def style() -> str:
    """The style sheet."""
    return f"{vendored.text('uplot.css')}\n{_text('report.css')}"


@cache
def library() -> str:
    """uPlot, with its licence."""
    licence = vendored.text("uplot.LICENSE").replace("*/", "* /")
    return f"/*\n{licence}*/\n{vendored.text('uplot.js')}"


@cache
def script() -> str:
    """The page's own script."""
    return "'use strict';\n(function () {\n" + "".join(map(_text, _SCRIPTS)) + "})();\n"


def _text(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
