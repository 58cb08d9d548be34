"""Style sheets: all of them are loaded at once, so a class means the same on every page."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.house import ROOT, broken

STYLES = ROOT / "logqueue/server/pages/ui/style"


def leading_classes(text: str) -> set[str]:
    """Classes that a rule begins with, and so restyles wherever they are."""
    found = set()
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for selectors in re.findall(r"([^{}]+)\{", plain):
        for selector in selectors.split(","):
            if leading := re.match(r"\s*\.([a-z][\w-]*)\s*(?:$|:)", selector):
                found.add(leading[1])
    return found


def test_a_class_is_styled_in_one_sheet() -> None:
    places = defaultdict(set)
    for sheet in sorted(STYLES.glob("*.css")):
        for name in leading_classes(sheet.read_text(encoding="utf-8")):
            places[name].add(sheet.name)
    broken(
        "a class that a page restyles needs a parent of that page, as in `.timeline .dot`",
        (
            f".{name}: {', '.join(sorted(sheets))}"
            for name, sheets in places.items()
            if len(sheets) > 1
        ),
    )
