"""What holds for all tests."""

from __future__ import annotations

import pytest

from tests.effort import IS_THOROUGH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What costs much and rarely finds anything is left to runs that take their time."""
    if IS_THOROUGH:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test-all"))
