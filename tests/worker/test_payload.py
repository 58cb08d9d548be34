"""How calls travel: what is taken, what is refused, and that both sides agree."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from logqueue.worker import BadPayload
from logqueue.worker.payload import Arguments, TaskCall, read_call


class Point(msgspec.Struct):
    """Something with a shape."""

    x: int
    y: int = 0


def plain(a: int, b: str = "b") -> None: ...
def shaped(at: Point, when: dt.datetime, by: dict[int, str]) -> None: ...
def starred(first: int, *rest: int, **named: str) -> None: ...
def untyped(anything) -> None: ...  # type: ignore[no-untyped-def]


def around(function: Any, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """A call, sent and received."""
    arguments = Arguments("task", function)
    data = msgspec.json.decode(msgspec.json.encode(arguments.encode(args, kwargs)))
    return arguments.decode(read_call(data))


def test_a_call_travels_as_plain_json() -> None:
    data = Arguments("resize", plain).encode((1,), {"b": "x"})
    assert data == {"task": "resize", "args": [1], "kwargs": {"b": "x"}}


def test_arguments_come_back_as_their_annotations_say() -> None:
    when = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    assert around(shaped, Point(1, 2), when, by={3: "c"}) == (
        [Point(1, 2), when, {3: "c"}],
        {},
    )


def test_stars_are_converted_one_by_one() -> None:
    assert around(starred, 1, 2, 3, x="y") == ([1, 2, 3], {"x": "y"})


def test_untyped_parameters_take_anything() -> None:
    assert around(untyped, {"deep": [1, None]}) == ([{"deep": [1, None]}], {})


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (plain, ("1",), {}),
        (plain, (), {}),
        (plain, (1, "b", 2), {}),
        (plain, (1,), {"c": 1}),
        (shaped, (Point(1), "yesterday", {}), {}),
        (starred, (1, "2"), {}),
        (starred, (1,), {"x": 1}),
        (untyped, (object(),), {}),
    ],
)
def test_a_call_that_does_not_fit_is_not_sent(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        Arguments("task", function).encode(args, kwargs)


@pytest.mark.parametrize(
    "data", [None, 1, [], {}, {"task": 1}, {"task": "t", "args": {}}, {"task": "t", "kwargs": []}]
)
def test_what_is_no_call_is_a_bad_payload(data: Any) -> None:
    with pytest.raises(BadPayload, match="not a task call"):
        read_call(data)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (TaskCall("plain", ["x"]), "'a'"),
        (TaskCall("plain", []), "missing"),
        (TaskCall("plain", [1], {"z": 1}), "unexpected"),
    ],
)
def test_a_call_that_does_not_fit_is_a_bad_payload(call: TaskCall, said: str) -> None:
    with pytest.raises(BadPayload, match=said):
        Arguments("plain", plain).decode(call)


def test_a_parameter_that_can_not_travel_is_found_at_once() -> None:
    def odd(thing: complex) -> None: ...

    def fine(thing: int) -> None: ...

    Arguments("fine", fine)
    with pytest.raises(TypeError, match="'thing' cannot be encoded"):
        Arguments("odd", odd)
