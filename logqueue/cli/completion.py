"""`logqueue completion`: what makes a shell complete our commands and flags.

Owns: the command. Must not know: any other command; it takes their parser as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from logqueue.cli import ending, output
from logqueue.cli.arguments import Commands


def add_to(commands: Commands, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Declare the command.

    Args:
        whole: Makes the parser of the whole command line.
    """

    def completion(arguments: argparse.Namespace) -> int:
        import shtab

        output.line(shtab.complete(whole(), shell=arguments.shell))
        return ending.OK

    added = commands.add(
        "completion",
        completion,
        "print a script that makes a shell complete commands and flags",
        examples=(
            'eval "$(logqueue completion bash)"   # in ~/.bashrc',
            'logqueue completion zsh > "${fpath[1]}/_logqueue"',
        ),
    )
    added.add_argument("shell", choices=("bash", "zsh"))
