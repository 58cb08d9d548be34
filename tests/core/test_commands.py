"""What commands say of themselves."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from logqueue.core import commands as cmd
from logqueue.core.decide.dispatch import _DECIDE, _TOGETHER

COMMANDS = cmd.Command.__subclasses__()
IN_PORTIONS = {cmd.DeleteRecords, cmd.Purge, cmd.Redrive}
"""Commands that are only carried out by others."""


def result_of(command: type[Any]) -> Any:
    (base,) = command.__orig_bases__
    return get_args(base)[0]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_the_decision_has_the_result_that_the_command_names(command: type[Any]) -> None:
    if command in IN_PORTIONS:
        assert command not in _DECIDE
        return
    if command is cmd.Cohort:
        assert command not in _DECIDE and _TOGETHER.keys() <= _DECIDE.keys()
        return
    hints = get_type_hints(_DECIDE[command])
    assert hints["command"] is command
    assert get_args(hints["return"]) == (result_of(command),)
