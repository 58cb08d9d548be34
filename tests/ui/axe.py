"""What axe-core finds wrong for people who use a keyboard, a screen reader or little light.

Owns: the vendored copy of axe-core, how it is run, which findings count. Must not know: pages.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page

from tests.effort import IS_THOROUGH

VENDOR = Path(__file__).with_name("vendor")
COUNTED = ("serious", "critical")


class Vendored(NamedTuple):
    """A file of another project in this tree."""

    name: str
    version: str
    licence: str
    source: str
    sha256: str


AXE = Vendored(
    name="axe.min.js",
    version="4.14.1",
    licence="MPL-2.0",
    source="npm axe-core, file axe.min.js",
    sha256="29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
)

_COLOURS = ("color-contrast", "link-in-text-block")
"""Rules whose findings depend on the theme."""

_RUN = """async (rules) => {
  const runOnly = rules.length ? {runOnly: {type: "rule", values: rules}} : {};
  const found = await axe.run(document, {resultTypes: ["violations"], ...runOnly});
  return found.violations.map(({id, impact, help, nodes}) => ({
    id, impact, help, places: nodes.slice(0, 5).map((node) => node.html.slice(0, 200)),
    why: nodes.slice(0, 5).map((node) => node.failureSummary),
  }));
}"""


def text() -> str:
    """The code of axe-core."""
    return (VENDOR / AXE.name).read_text(encoding="utf-8")


def digest() -> str:
    """The SHA-256 of the file, in hex."""
    return hashlib.sha256((VENDOR / AXE.name).read_bytes()).hexdigest()


def findings(page: Page, *rules: str) -> list[dict[str, Any]]:
    """What is serious or worse on a page now: by these rules, or by all."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(text())
    found: list[dict[str, Any]] = page.evaluate(_RUN, list(rules))
    return [one for one in found if one["impact"] in COUNTED]


def thin(page: Page, *alike: str, every: int = 8) -> None:
    """Remove most of what is made alike: a browser takes a second for each thousand elements.

    Args:
        page: As it is now.
        alike: Selectors of elements that one piece of code writes. Of what one of them finds below
            one parent, the first, the last and each `every`-th stay; in `make test-all`, all.
    """
    if IS_THOROUGH:
        return
    page.evaluate(
        """([selectors, every]) => {
          for (const selector of selectors) {
            const places = new Map();
            for (const one of document.querySelectorAll(selector)) {
              if (!places.has(one.parentNode)) places.set(one.parentNode, []);
              places.get(one.parentNode).push(one);
            }
            for (const place of places.values())
              place.slice(0, -1).filter((_, at) => at % every).forEach((one) => one.remove());
          }
        }""",
        [list(alike), every],
    )


def check(page: Page, *, colours_only: bool = False) -> None:
    """Fail with every serious finding.

    Args:
        page: As it is now.
        colours_only: Enough for a theme, where the other one was checked in full.
    """
    found = findings(page, *(_COLOURS if colours_only else ()))
    assert not found, f"{page.url}:\n" + "\n".join(_told(one) for one in found)


def _told(finding: dict[str, Any]) -> str:
    lines = [f"{finding['impact']} {finding['id']}: {finding['help']}"]
    for place, why in zip(finding["places"], finding["why"], strict=True):
        lines += [f"    {place}", f"        {why}"]
    return "\n".join(lines)
