"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from logqueue.testing import process
from tests.effort import IS_THOROUGH
from tests.http.forked import AsSubprocess

LONG = (
    "spark/",
    "test_readme.py",
    "crash/",
    "demo/",
    "cli/test_offline.py",
    "soak/",
    "sim/",
    "core/",
    "cli/",
    "examples/",
    "ui/",
)
"""What takes long begins first, and of that what mostly waits; so processes end together."""

ONE_PROCESS = {
    "tests/spark/": "tests/spark",
    "tests/test_house": "sources",
    "tests/test_rooms.py": "sources",
    "tests/test_unused.py": "sources",
    "tests/packaging/test_extras.py": "sources",
}
"""Files that one process runs, and what they share: a Java, which takes long to start and longer to
be quick; the parsed code of the project."""


# On a busy machine an example takes as long as it takes.
settings.register_profile("logqueue", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("logqueue")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before processes are started, of xdist or by tests."""
    if getattr(config.option, "maxworkerrestart", "") is None:
        # The one that takes over from one that crashed or hung gets nothing to do, but an error in
        # xdist, and what failed is not told.
        config.option.maxworkerrestart = "0"
    _keep_bytecode()
    _use_class_archive_if_any()


def _keep_bytecode() -> None:
    """Tests start hundreds of processes: each would compile every module anew without it."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _use_class_archive_if_any() -> None:
    """Spark's archive of classes saves seconds for every Java, and costs a minute to make."""
    from logqueue.pipeline.engines.spark.session import class_archive, java
    from logqueue.pipeline.errors import PipelineError

    try:
        has_archive = class_archive.path(java.find(), java.cache_directory()).is_file()
    except PipelineError:
        has_archive = False
    if not has_archive:
        os.environ[class_archive.SWITCH] = "off"


@pytest.fixture(scope="session", autouse=True)
def servers_are_forked() -> Iterator[None]:
    """Those of `logqueue.testing` too: importing one takes ten times as long as starting it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", AsSubprocess)
        yield


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their place: some are random, and all processes of a run must agree."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What costs much and rarely finds anything is left to runs that take their time."""
    items.sort(key=_turn)
    if IS_THOROUGH:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test-all"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Whoever reads the last lines must see that the dashboard was not tested."""
    skipped = {
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
        if "tests/ui/" in report.nodeid and isinstance(report.longrepr, tuple)
    }
    for reason in sorted(reason for reason in skipped if "Chromium" in reason):
        terminalreporter.write_sep("!", reason.removeprefix("Skipped: "), yellow=True, bold=True)


def pytest_collection_finish() -> None:
    """Ten thousand tests and all modules are here to stay: garbage is looked for among the rest,
    and less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _turn(item: pytest.Item) -> int:
    """Where the file of a test stands in LONG, or behind all of it."""
    below = item.nodeid.removeprefix("tests/")
    return next((place for place, long in enumerate(LONG) if below.startswith(long)), len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is run by one process, so that its servers are shared; so are those of ONE_PROCESS."""
    from xdist.scheduler import loadfile

    class Together(loadfile.LoadFileScheduling):  # type: ignore[misc]
        """Files that share something are one unit of work."""

        def _split_scope(self, nodeid: str) -> str:
            for start, together in ONE_PROCESS.items():
                if nodeid.startswith(start):
                    return together
            scope: str = super()._split_scope(nodeid)
            return scope

    return Together(config, log)
