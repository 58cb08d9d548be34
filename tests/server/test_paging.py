"""Pages of names cost what is on them, whatever else there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from sortedcontainers import SortedDict

from logqueue.api.paging import names_from
from logqueue.server.auth import Key

NAMES = [f"{tenant}.{number:02}" for tenant in ("a", "b", "b.x", "c") for number in range(20)]


class Counting:
    """Names in order; counts those that were looked at."""

    def __init__(self) -> None:
        self.looked_at = 0
        self._names = SortedDict(dict.fromkeys(NAMES))

    def irange(self, *args: Any, **options: Any) -> Iterator[str]:
        """See SortedDict."""
        for name in self._names.irange(*args, **options):
            self.looked_at += 1
            yield name


@pytest.mark.parametrize("prefix", ["", "b", "b.x.1", "c.", "d"])
@pytest.mark.parametrize("after", ["", "b.07", "b.x.03", "zz"])
@pytest.mark.parametrize(
    "prefixes", [(), ("b.",), ("b.x.", "b.", "c.1"), ("b.0", "a"), ("d",), ("c.19",)]
)
def test_names_are_those_that_a_filter_lets_through(
    prefix: str, after: str, prefixes: tuple[str, ...]
) -> None:
    key = Key("k", prefixes=prefixes)
    known: Any = Counting()
    found = [*names_from(known, prefix, after, key)]
    expected = [n for n in sorted(NAMES) if n > after and n.startswith(prefix) and key.allows(n)]
    assert found == expected
    # One too many for each prefix, to see where it ends.
    assert known.looked_at <= len(expected) + max(len(prefixes), 1)


def test_a_page_looks_at_no_more_than_it_shows() -> None:
    known: Any = Counting()
    key = Key("k", prefixes=("c.",))
    assert [*islice(names_from(known, "", "", key), 3)] == ["c.00", "c.01", "c.02"]
    assert known.looked_at == 3
