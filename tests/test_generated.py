"""What is written from the table of operations is up to date, and leads somewhere."""

from __future__ import annotations

import re

import pytest

from logqueue.api.operations import OPERATIONS, Operation
from tests.house import ROOT, page
from tools import operations as generated


def test_generated_files_are_up_to_date() -> None:
    stale = [
        str(file.relative_to(ROOT))
        for file, text in generated.contents().items()
        if file.read_text("utf-8") != text
    ]
    assert not stale, "run make generate"


def headings() -> set[str]:
    """The headings of docs/protocol.md, as links have them."""
    text = page(generated.PROTOCOL)
    return {
        re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_the_heading_of_an_operation_exists(row: Operation) -> None:
    assert generated.anchor(row) in headings()


def test_a_page_without_a_place_for_a_table_is_told() -> None:
    with pytest.raises(ValueError, match="has no <!-- begin routes"):
        generated.protocol("# Protocol")


def test_clients_name_every_operation_by_its_row() -> None:
    """No call module writes a method or a path of its own."""
    for file in sorted((ROOT / "logqueue" / "client").glob("*.py")):
        if file.name != "endpoints.py":
            text = file.read_text("utf-8")
            assert not re.search(r'"/v0/|CallRequest\(\s*"', text), file.name
