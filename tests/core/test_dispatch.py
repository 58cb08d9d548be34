"""The table of decisions: each command has one, and it yields what the command promises."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from logqueue.core import commands as cmd
from logqueue.core.decide.dispatch import _DECIDE


def result_of(kind: type[Any]) -> Any:
    """The result that a command's type names."""
    (base,) = kind.__orig_bases__
    return get_args(base)[0]


def test_each_decision_takes_its_command_and_yields_its_result() -> None:
    for kind, decided in _DECIDE.items():
        hints = get_type_hints(decided)
        assert hints["command"] is kind, decided
        assert get_args(hints["return"]) == (result_of(kind),), decided


def test_a_command_is_decided_here_or_carried_out_in_portions() -> None:
    kinds = set(cmd.Command.__subclasses__())
    in_portions = kinds - _DECIDE.keys()
    assert in_portions == {cmd.DeleteRecords, cmd.Purge, cmd.Redrive}
