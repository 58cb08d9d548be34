"""How a call of a task travels as a job, and how it becomes a call again.

Owns: the format, `{"task": name, "args": [...], "kwargs": {...}}`, and checking arguments against
the annotations of the function. Must not know: queues, clients.

A producer checks a call by reading back what it is about to send, so that what was sent can also
be taken by a worker of the same version. Arguments without annotation may be anything JSON knows.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from threading import RLock
from typing import Any

import msgspec

from logqueue.client.calls import encode
from logqueue.errors import quoted
from logqueue.json_problems import type_problem
from logqueue.worker.outcomes import BadPayload, BadResult

RESULT_BYTES_MAX = 64 << 10
"""What a queue keeps of one result."""


class TaskCall(msgspec.Struct, frozen=True):
    """The data of a job that calls a task.

    Attributes:
        takes_input: Whether the result of the job before it comes first among the arguments.
    """

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    takes_input: bool = False

    def with_input(self, given: Any) -> TaskCall:
        """The call with what the job before it came to."""
        return TaskCall(self.task, [given, *self.args], self.kwargs) if self.takes_input else self


def read_call(data: Any) -> TaskCall:
    """The call in a job's data.

    Raises:
        BadPayload: There is none.
    """
    try:
        call: TaskCall = typed(data, TaskCall)
    except msgspec.ValidationError as error:
        raise BadPayload(
            'the data is not a task call, {"task": ..., "args": [...], "kwargs": {...}}: '
            + type_problem(error, TaskCall, "the data")
        ) from error
    return call


def checked_result(value: Any) -> Any:
    """What a task returned, as plain JSON that can be kept.

    Raises:
        BadResult: JSON has no such value, or it has more than 64 KiB.
    """
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_as_plain)
        size = len(encode(plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"the result is not JSON: {error}") from error
    if size > RESULT_BYTES_MAX:
        raise BadResult(
            f"the result has {size} bytes; at most {RESULT_BYTES_MAX} are kept. Store it elsewhere "
            "and return a reference"
        )
    return plain


def typed(plain: Any, kind: Any) -> Any:
    """A value of JSON as an annotation says.

    Raises:
        msgspec.ValidationError: It does not fit.
    """
    if _is_learned(kind):
        return msgspec.convert(plain, kind, str_keys=True, dec_hook=_from_plain)
    with _learning:
        value = msgspec.convert(plain, kind, str_keys=True, dec_hook=_from_plain)
    with suppress(TypeError):
        _learned.add(kind)
    return value


_learning = RLock()
"""While msgspec learns a class it runs Python: a second thread that comes by then crashes."""
_learned: set[Any] = set()


def _is_learned(kind: Any) -> bool:
    try:
        return kind in _learned
    except TypeError:  # an annotation without a hash
        return False


def _is_model(kind: Any) -> bool:
    """Whether it is a model class of pydantic, which need not be installed."""
    return isinstance(kind, type) and callable(getattr(kind, "model_validate", None))


def _schema_of(kind: type) -> dict[str, Any]:
    """What msgspec does not know and travels all the same: paths as texts, models as objects."""
    if issubclass(kind, PurePath):
        return {"type": "string"}
    if _is_model(kind):
        return {"type": "object"}
    raise NotImplementedError


def _as_plain(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, PurePath):
        return str(value)
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"objects of type {type(value).__name__} cannot be encoded as JSON")


def _from_plain(kind: type, plain: Any) -> Any:
    if issubclass(kind, PurePath):
        if not isinstance(plain, str):
            raise ValueError(f"expected a path as text, got {type(plain).__name__}")
        return kind(plain)
    if _is_model(kind):
        # Its ValidationError is a ValueError, which msgspec reports as a mistake in the data.
        return kind.model_validate(plain)  # type: ignore[attr-defined]
    raise NotImplementedError


class Arguments:
    """The parameters of one function: encodes and decodes calls of it."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        """Look at a function's parameters.

        Raises:
            TypeError: A parameter's type cannot travel as JSON.
        """
        self._name = name
        self._signature = inspect.signature(function)
        try:
            hints = typing.get_type_hints(function)
        except NameError as error:
            raise TypeError(f"task {name}: its annotations cannot be resolved: {error}") from error
        self._types = {
            parameter: hints.get(parameter, Any) for parameter in self._signature.parameters
        }
        self._returns = hints.get("return", Any)
        try:
            msgspec.json.schema(self._returns, schema_hook=_schema_of)
        except TypeError:
            # Of interest only where results are kept, and then they are what JSON has.
            self._returns = Any
        for parameter, kind in self._types.items():
            try:
                msgspec.json.schema(kind, schema_hook=_schema_of)
            except TypeError as error:
                raise TypeError(
                    f"task {name}: parameter {quoted(parameter)} cannot be encoded as JSON: {error}"
                ) from error

    def result(self, plain: Any) -> Any:
        """What the function returned, as its annotation says.

        Raises:
            BadResult: It does not fit; another version of the task may have run.
        """
        if plain is None:
            return None
        try:
            return typed(plain, self._returns)
        except msgspec.ValidationError as error:
            problem = type_problem(error, self._returns, "the result")
            raise BadResult(f"task {self._name}: {problem}") from error

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The data of a job for this call.

        Raises:
            TypeError: The arguments do not fit the function, in number, name or type.
        """
        self._signature.bind(*args, **kwargs)
        try:
            plain = msgspec.to_builtins(
                {"task": self._name, "args": list(args), "kwargs": dict(kwargs)},
                str_keys=True,
                enc_hook=_as_plain,
            )
            self.decode(read_call(plain))
        except (BadPayload, msgspec.MsgspecError, TypeError) as error:
            raise TypeError(f"task {self._name}: invalid arguments: {error}") from error
        return typing.cast(dict[str, Any], plain)

    def encode_later(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The data of a job for a call whose first argument comes later: the result of the job
        before it.

        Raises:
            TypeError: The arguments do not fit the function, in number, name or type.
        """
        bound = self._signature.bind(None, *args, **kwargs)
        try:
            plain = msgspec.to_builtins(
                {
                    "task": self._name,
                    "args": list(args),
                    "kwargs": dict(kwargs),
                    "takes_input": True,
                },
                str_keys=True,
                enc_hook=_as_plain,
            )
            call = read_call(plain)
            bound = self._signature.bind(None, *call.args, **call.kwargs)
            for parameter, given in [*bound.arguments.items()][1:]:
                self._convert(parameter, given)
        except (BadPayload, msgspec.MsgspecError, TypeError) as error:
            raise TypeError(f"task {self._name}: invalid arguments: {error}") from error
        return typing.cast(dict[str, Any], plain)

    def decode(self, call: TaskCall) -> tuple[list[Any], dict[str, Any]]:
        """The positional and named arguments of a call, as their annotations say.

        Raises:
            BadPayload: They do not fit the function.
        """
        try:
            bound = self._signature.bind(*call.args, **call.kwargs)
        except TypeError as error:
            raise BadPayload(f"task {self._name}: wrong arguments: {error}") from error
        for parameter, given in bound.arguments.items():
            bound.arguments[parameter] = self._convert(parameter, given)
        return list(bound.args), bound.kwargs

    def _convert(self, parameter: str, given: Any) -> Any:
        kind = self._types[parameter]
        shape = self._signature.parameters[parameter].kind
        try:
            if shape is inspect.Parameter.VAR_POSITIONAL:
                return tuple(typed(one, kind) for one in given)
            if shape is inspect.Parameter.VAR_KEYWORD:
                return {name: typed(one, kind) for name, one in given.items()}
            return typed(given, kind)
        except msgspec.ValidationError as error:
            problem = type_problem(error, kind, "it")
            raise BadPayload(
                f"invalid argument {quoted(parameter)} of task {self._name}: {problem}"
            ) from error
