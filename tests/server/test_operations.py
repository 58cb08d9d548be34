"""The table of operations is whole: handlers, commands, names."""

from __future__ import annotations

from contextlib import closing

import pytest

from logqueue.api import openapi
from logqueue.api.openapi.document import errors_of
from logqueue.api.operations import BY_NAME, GROUPS, OPERATIONS, Body, Kind, Operation
from logqueue.core import commands as cmd
from logqueue.errors import StorageFull
from logqueue.server.app import routes
from logqueue.server.http.requests import HttpRequest, Reply
from logqueue.server.http.routing import routes_of, serves
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.settings import Settings
from tests.server.memory import Memory

BESIDE = {
    cmd.RemoveRecords,
    cmd.PurgeJobs,
    cmd.RedriveLetters,
    cmd.ReleaseStream,
    cmd.Cohort,
    cmd.Expire,
    cmd.Compact,
    cmd.Forward,
    cmd.ExpireStaged,
    cmd.FireSchedule,
    cmd.EndBatch,
    cmd.ExpireBatches,
}
"""Commands without an operation: portions of others, what time does, what routers do."""


def test_every_operation_has_its_handlers() -> None:
    """A new operation needs a method with `@serves` on one of the objects in server/app.py."""
    service = Service(Settings())
    table = routes(service, Metrics(service))
    assert [(r.method, r.pattern, r.scope, r.body) for r in table] == [
        (row.method, row.pattern, row.scope, row.body_policy) for row in OPERATIONS
    ]
    for row, route in zip(OPERATIONS, table, strict=True):
        assert (route.stream is not None) == (row.kind is Kind.STREAM)
        assert (route.socket is not None) == (row.kind is Kind.SOCKET)
        assert (route.handler is None) == (row.kind is Kind.STREAM)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(OPERATIONS)
    assert len({(row.method, row.pattern) for row in OPERATIONS}) == len(OPERATIONS)
    assert {row.group for row in OPERATIONS} == set(GROUPS)


def test_every_command_is_of_an_operation_or_of_time() -> None:
    asked_for = {row.command for row in OPERATIONS if row.command is not None}
    assert asked_for | BESIDE == set(cmd.Command.__subclasses__())
    assert not asked_for & BESIDE


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda row: row.name)
def test_an_operation_with_a_command_may_find_no_room(operation: Operation) -> None:
    """That follows from its command, so no row repeats it; the reply of a stream has begun then."""
    assert StorageFull not in operation.errors
    has_reply = operation.kind is Kind.REPLY and operation.command is not None
    assert (StorageFull in errors_of(operation)) == has_reply


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda row: row.name)
def test_a_row_says_all_of_its_parts(operation: Operation) -> None:
    assert (operation.body is None) == (operation.body_policy is Body.IGNORED)
    assert (operation.asks is None) == (operation.body is None)
    assert (operation.example is None) == (operation.reply is None)
    assert operation.reply is not None or operation.content or operation.kind is Kind.SOCKET
    assert bool(operation.frames) == (operation.kind in (Kind.STREAM, Kind.EVENTS))


class _Sample:
    @serves("health")
    def health(self, request: HttpRequest) -> Reply:
        """Answer."""
        return Reply(b"{}")


def test_a_missing_handler_or_row_is_found_at_the_start() -> None:
    health, ready = BY_NAME["health"], BY_NAME["ready"]
    (route,) = routes_of([health], [_Sample()])
    assert route.handler is not None
    with pytest.raises(ValueError, match=r"no handler is registered for .*ready"):
        routes_of([health, ready], [_Sample()])
    with pytest.raises(ValueError, match=r"no row: .*health"):
        routes_of([], [_Sample()])


def test_the_description_for_machines_is_made_when_it_is_first_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bytes] = []

    def encoded() -> bytes:
        made.append(b"{}")
        return b"{}"

    monkeypatch.setattr(openapi, "encoded", encoded)
    with closing(Memory()) as server:
        assert not made
        assert server.begin("GET", "openapi.json").take() == b"{}"
        assert made
