"""The rules of the house for pages: what is documented, what README promises, what no file says.

As in test_house.py, each rule is one test that lists every place that breaks it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httpx
import pytest

from logqueue import __version__
from logqueue.api.operations import OPERATIONS as API
from logqueue.cli.main import parser as cli_parser
from logqueue.errors import every_error
from logqueue.server.settings import OPTIONS
from tests import house, readme
from tests.house import ROOT, broken, page, sources
from tests.http.process import ServerProcess

PROTOCOL = "docs/protocol.md"
OPERATIONS = "docs/operations.md"
COMMANDS = "docs/cli.md"

# -- codes, settings, routes, metrics --------------------------------------------------------------


def test_every_error_code_is_documented() -> None:
    text = page(PROTOCOL)
    broken(
        f"{PROTOCOL} explains every error code, as `code`",
        {error.code for error in every_error() if f"`{error.code}`" not in text},
    )


def variables() -> set[str]:
    """Every LOGQUEUE_ variable that the server or the command line reads."""
    named = {
        name
        for source in sources("logqueue")
        if source.is_in("logqueue.server") or source.is_in("logqueue.cli")
        for _, text in source.facts.constants
        for name in re.findall(r"LOGQUEUE_[A-Z_]*[A-Z]", text)
    }
    return named | {option.variable for option in OPTIONS}


def test_every_setting_is_documented() -> None:
    text = page(OPERATIONS) + page(COMMANDS)
    broken(
        f"{OPERATIONS} explains every setting, {COMMANDS} every variable of other commands",
        (name for name in variables() if not re.search(rf"\b{name}\b", text)),
    )


def asked_for_help(*arguments: str) -> str:
    """What the command line says about itself."""
    asked = subprocess.run(
        [sys.executable, "-m", *arguments, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def test_every_command_and_flag_is_documented() -> None:
    text, of_server = page(COMMANDS), page(OPERATIONS)
    known = commands(cli_parser())
    assert {"serve", "work", "routers create"} <= known.keys()
    in_help = set(
        re.findall(r"^    ([a-z][a-z-]*)(?: |$)", asked_for_help("logqueue"), re.MULTILINE)
    )
    assert in_help == {name for name in known if " " not in name}
    shared = {"--help", "-h"}
    of_settings = {option.flag for option in OPTIONS}
    broken(
        f"{COMMANDS} explains every command and flag; {OPERATIONS} those of serve",
        [
            *(f"logqueue {name}" for name in in_help if f"`logqueue {name}" not in text),
            *(
                f"logqueue {name} {flag}"
                for name, parser in known.items()
                for flag in parser._option_string_actions.keys() - shared - of_settings
                if f"`{flag}" not in (of_server if name == "serve" else text)
            ),
        ],
    )


def commands(
    parser: argparse.ArgumentParser, before: str = ""
) -> dict[str, argparse.ArgumentParser]:
    """Every command below a parser, by what one types."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found[before + name] = below
                found |= commands(below, f"{before}{name} ")
    return found


def test_every_command_on_a_page_can_be_meant() -> None:
    wrong, tried = [], 0
    for path in house.PAGES:
        for block in readme.shell_blocks(page(path)):
            for command in block.commands():
                for words in programs(command):
                    if words[0] == "make" and path != "README.md":  # whose rule is below
                        targets = {word for word in words[1:] if "=" not in word}
                        wrong += [f"{path}: make {name}" for name in targets - house.make_targets()]
                    if words[0].rpartition("/")[2] == "logqueue":
                        tried += 1
                        if not can_be_meant(words[1:]):
                            wrong.append(f"{path}: {command}")
    assert tried > 80
    broken("commands on a page are ones that the command line takes", wrong)


def programs(command: str) -> Iterator[list[str]]:
    """The programs that a line of a shell runs, each with its words."""
    for inner in re.findall(r"\$\(([^)]*)\)", command):
        yield from programs(inner)
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    is_file = False
    for word in [*lexer, ";"]:
        if set(word) <= set("<>"):
            is_file = True
        elif set(word) <= set("|&;"):
            if words:
                yield words
            words = []
        elif is_file:
            is_file = False
        else:
            words.append(word)


@cache
def _command_line() -> argparse.ArgumentParser:
    return cli_parser()


def can_be_meant(arguments: list[str]) -> bool:
    """Whether the command line takes these arguments."""
    if "--help" in arguments:
        return True
    try:
        _command_line().parse_args(arguments)
    except SystemExit:
        return False
    return True


def has_route(text: str, method: str, path: str) -> bool:
    """Whether some line has both; parameters may be written *, :name, {name} or <name>."""
    parts = re.split(r"(?:\*|:\w+|\{\w+\}|<\w+>)", path)
    parameter = r"(?:\*|:\w+|\{\w+\}|<\w+>)"
    exact = parameter.join(re.escape(part) for part in parts) + r"(?![\w/:{<*])"
    line = re.compile(rf"^(?=.*\b{method}\b).*(?<![\w/]){exact}", re.MULTILINE)
    return line.search(text) is not None


def test_every_route_is_documented() -> None:
    text = page(PROTOCOL)
    broken(
        f"{PROTOCOL} has every route: method and path on one line",
        (
            f"{route.method} {route.pattern}"
            for route in API
            if not has_route(text, route.method, route.pattern)
        ),
    )


def test_every_metric_is_documented(tmp_path: Path) -> None:
    text = page(OPERATIONS)
    process = ServerProcess(tmp_path / "data")
    try:
        scraped = httpx.get(
            process.start().base_url + "/v0/metrics", trust_env=False, verify=False
        ).text
    finally:
        process.stop()
    names = re.findall(r"^# TYPE (logqueue_\w+?)(?:_total)? ", scraped, flags=re.MULTILINE)
    assert len(names) > 20, scraped
    broken(
        f"{OPERATIONS} explains every metric",
        (name for name in names if not re.search(rf"\b{name}(?:_total)?\b", text)),
    )


@pytest.mark.parametrize(
    ("text", "method", "path", "has"),
    [
        ("| GET | `/v0/topics/:topic` |", "GET", "/v0/topics/*", True),
        ("### `POST /v0/topics/{topic}/claim`", "POST", "/v0/topics/*/claim", True),
        ("PUT / GET `/v0/topics/<topic>`", "GET", "/v0/topics/{name}", True),
        ("POST /v0/topics/:q/claim", "POST", "/v0/topics/*", False),
        ("POST /v0/topics/:q", "GET", "/v0/topics/*", False),
        ("GET /v0/topics", "GET", "/v0/topics/*", False),
        ("GET /v0/topics/:t", "GET", "/v0/topics", False),
        ("GET\n/v0/health", "GET", "/v0/health", False),
        ("GET /v0/healthz", "GET", "/v0/health", False),
    ],
)
def test_has_route(text: str, method: str, path: str, has: bool) -> None:
    assert has_route(text, method, path) is has


# -- what people read first ------------------------------------------------------------------------

TOOLS = frozenset({"curl", "git", "cd", "docker", "kill", "export", "python"})
"""Programs that README may use beside our own."""


def offered(command: str) -> bool:
    """Whether a command of README is one that this project, or every machine, offers."""
    match readme.program(command):
        case []:
            return True
        case ["make", *targets]:
            return {target for target in targets if "=" not in target} <= house.make_targets()
        case [".venv/bin/logqueue", "serve", "--help"]:
            return helps("logqueue", ["serve"])
        case ["logqueue" | ".venv/bin/logqueue", *arguments]:
            return can_be_meant(arguments)
        case [".venv/bin/python", "-m", module, *arguments]:
            return helps(module, arguments)
        case [tool, *_]:
            return tool in TOOLS
    return False


def helps(module: str, arguments: list[str]) -> bool:
    """Whether `python -m module subcommand --help` knows the subcommand."""
    subcommand = [word for word in arguments[:1] if not word.startswith("-")]
    asked = subprocess.run(
        [sys.executable, "-m", module, *subcommand, "--help"],
        cwd=ROOT,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return asked.returncode == 0


def test_every_readme_command_exists() -> None:
    broken(
        "README.md shows only commands that exist",
        (
            f"README.md:{block.line}: {command}"
            for block in readme.shell_blocks(page("README.md"))
            for command in block.commands()
            if not offered(command)
        ),
    )


def test_readme_starts_with_the_demo_and_the_tests() -> None:
    commands = [
        command for block in readme.shell_blocks(page("README.md")) for command in block.commands()
    ]
    assert commands[:2] == ["make demo", "make test"]


def test_the_changelog_knows_the_version() -> None:
    version = tomllib.loads(page("pyproject.toml"))["project"]["version"]
    assert version == __version__, "pyproject.toml and logqueue.__version__ disagree"
    assert re.search(rf"^## {re.escape(version)}\b", page("CHANGELOG.md"), flags=re.MULTILINE), (
        f"CHANGELOG.md has no section '## {version}'"
    )


LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def test_links_between_pages_lead_somewhere() -> None:
    broken(
        "a link in a page leads to a file of the project",
        (
            f"{path}: {target}"
            for path in house.project_files()
            if path.endswith(".md")
            for target in LINK.findall(page(path))
            if not (ROOT / path).parent.joinpath(target).exists()
        ),
    )


_PLACE = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
"""A name in a file, as design.md writes it: `core/decide/claims.py: claim`."""
_NAMES_DEFINED = re.compile(
    r"(?:class|def) (\w+)|^ *(?:self\.)?(\w+)(?:: [^=\n]+)? = |^ {4}(\w+): ", re.M
)


def missing_places(text: str) -> Iterator[str]:
    """Names that a page gives with their file and that are not defined there."""
    for path, name in _PLACE.findall(text):
        defined = [
            {name for found in _NAMES_DEFINED.findall(source.text) for name in found}
            for source in sources()
            if f"/{source.path}".endswith(f"/{path}")
        ]
        if not any(set(name.split(".")) <= names for names in defined):
            yield f"{path}: {name}"


def test_the_design_names_what_there_is() -> None:
    broken(
        "docs/design.md names files and what they define", missing_places(page("docs/design.md"))
    )
    questions = re.findall(r"^\| .+\? \| .*\]\(#([a-z-]+)\)", page("docs/design.md"), re.M)
    headings = re.findall(r"^##+ (.+)$", page("docs/design.md"), re.M)
    anchors = {re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert len(questions) >= 5 and set(questions) <= anchors


def test_missing_places_are_found() -> None:
    text = "`tests/house.py: Source.facts`, `house.py: Source.nothing`, `nowhere.py: Source`"
    assert [*missing_places(text)] == ["house.py: Source.nothing", "nowhere.py: Source"]


# -- what must not be in any file ------------------------------------------------------------------

# Written in pieces so that this file does not break its own rule.
FORBIDDEN = {
    "a path of one machine": re.compile(
        r"(?<![\w.})>:*\]])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/\w"
    ),
    "a place beside the project": re.compile(r"\.\./" + "shared"),
    "the host of a package index or registry": re.compile(
        r"\b(?:(?:test\.)?py" + r"pi\.org|python" + r"hosted\.org|docker" + r"\.io|ghcr" + r"\.io)"
    ),
}


def forbidden(path: str, text: str) -> Iterator[str]:
    """Lines that say what no file of the project may say."""
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in FORBIDDEN.items():
            if pattern.search(line):
                yield f"{path}:{number}: {what}: {line.strip()[:100]}"


def test_no_file_names_a_machine_or_a_registry() -> None:
    broken(
        "the project works anywhere, so no file says where it was made",
        (
            place
            for path in house.project_files()
            for place in forbidden(path, (ROOT / path).read_bytes().decode("utf-8", "replace"))
        ),
    )


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("see /" + "work/main for it", 1),
        ("open('/" + "root/x')", 1),
        ("../" + "shared/x", 1),
        ("https://py" + "pi.org/simple", 1),
        ("GET /v0/topics/:q/work and POST", 0),
        ("claim/work/ack", 0),
        ("`/work` streams", 0),
        ("{queue}/work/x", 0),
        ("/healthz", 0),
    ],
)
def test_what_is_forbidden(line: str, counts: int) -> None:
    assert len(list(forbidden("page", line))) == counts
