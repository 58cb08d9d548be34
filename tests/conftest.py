"""What holds for all tests."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.effort import IS_THOROUGH

LONG = ("spark", "crash", "core", "sim", "cli", "demo")
"""What takes long begins first, so that processes end together."""


def pytest_configure() -> None:
    """Spark's archive of classes saves seconds for every Java, and costs a minute to make."""
    from logqueue.spark.errors import PipelineError
    from logqueue.spark.running import class_archive, java

    try:
        has_archive = class_archive.path(java.find(), java.cache_directory()).is_file()
    except PipelineError:
        has_archive = False
    if not has_archive:
        os.environ[class_archive.SWITCH] = "off"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What costs much and rarely finds anything is left to runs that take their time."""
    places = {room: place for place, room in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.split("/")[1], len(LONG)))
    if IS_THOROUGH:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test-all"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is run by one process, so that its servers are shared; all of Spark by one too."""
    from xdist.scheduler import loadfile

    class OneSpark(loadfile.LoadFileScheduling):  # type: ignore[misc]
        """A Java takes long to start and longer to be quick."""

        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/spark/"):
                return "tests/spark"
            scope: str = super()._split_scope(nodeid)
            return scope

    return OneSpark(config, log)
