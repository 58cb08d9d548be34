"""`logqueue completion`: what makes a shell complete our commands and flags.

Owns: the command. Must not know: any other command; it takes their parser as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands

TOPIC_ARGUMENTS = frozenset({"topic", "topics", "queue", "source", "dest"})
TOPICS = "_logqueue_topics"
FUNCTIONS = {
    "bash": """\
_logqueue_topics() {
  compgen -W "$(logqueue completion topics 2>/dev/null)" -- "$1"
}
""",
    "zsh": """\
_logqueue_topics() {
  compadd -- ${(f)"$(logqueue completion topics 2>/dev/null)"}
}
""",
}
"""What the scripts call to complete names of topics."""


def add_to(commands: Commands, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Declare the command.

    Args:
        whole: Makes the parser of the whole command line.
    """

    def completion(arguments: argparse.Namespace) -> int:
        if arguments.shell == "topics":
            return _topics(arguments)
        parser = whole()
        if arguments.shell == "fish":
            output.line(_fish(parser))
            return exits.OK
        import shtab

        for command in _commands(parser).values():
            for action in _topic_arguments(command):
                action.complete = dict.fromkeys(FUNCTIONS, TOPICS)  # type: ignore[attr-defined]
        preamble: Any = FUNCTIONS  # its annotation knows a single text only
        output.line(shtab.complete(parser, shell=arguments.shell, preamble=preamble))
        return exits.OK

    added = commands.add(
        "completion",
        completion,
        "print a script that makes a shell complete commands and flags",
        examples=(
            'eval "$(logqueue completion bash)"   # in ~/.bashrc',
            'logqueue completion zsh > "${fpath[1]}/_logqueue"',
            "logqueue completion fish > ~/.config/fish/completions/logqueue.fish",
        ),
    )
    added.add_argument(
        "shell",
        choices=("bash", "zsh", "fish", "topics"),
        help="the shell; `topics` prints the names that those scripts complete",
    )


def _topics(arguments: argparse.Namespace) -> int:
    """Names for a shell: a failure must not disturb the user's typing."""
    from logqueue.client import Backoff, Client
    from logqueue.errors import LogqueueError

    try:
        with Client(
            arguments.url, arguments.token, timeout_s=2.0, backoff=Backoff(attempts=1)
        ) as client:
            for entry in client.topics():
                output.line(entry.topic)
    except (LogqueueError, ValueError):
        return exits.FAILURE
    return exits.OK


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _topic_arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in command._actions
        if not action.option_strings and action.dest in TOPIC_ARGUMENTS
    ]


def _fish(parser: argparse.ArgumentParser) -> str:
    lines = ["complete -c logqueue -f"]
    for name, command in _commands(parser).items():
        what = (command.description or "").partition(".")[0].replace("\n", " ")
        first = "complete -c logqueue -n __fish_use_subcommand"
        lines.append(f"{first} -a {name} -d {_quoted(what)}")
        within = f"complete -c logqueue -n '__fish_seen_subcommand_from {name}'"
        for action in command._actions:
            for flag in action.option_strings:
                kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                value = "" if action.nargs == 0 else " -r"
                words = (
                    f" -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else ""
                )
                text = _quoted((action.help or "").replace("%%", "%"))
                lines.append(f"{within} {kind}{value}{words} -d {text}")
        if _topic_arguments(command):
            lines.append(f"{within} -a '(logqueue completion topics 2>/dev/null)'")
        elif any(action.dest == "file" for action in command._actions):
            lines.append(f"{within} -F")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
