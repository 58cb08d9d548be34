"""The image's recipe, read: no container engine is needed to see whether it can work."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatchcase

import pytest

from tests.house import ROOT, page, project_files

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", page("Dockerfile"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    found = [line.strip().partition(" ") for line in lines if line.strip()]
    return [(name, argument.strip()) for name, _, argument in found]


def arguments(name: str) -> list[str]:
    """The arguments of every instruction of this name, in order."""
    return [argument for found, argument in instructions() if found == name]


def last_stage() -> list[Instruction]:
    """The instructions that make the image itself."""
    found = instructions()
    start = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def copied_from_the_tree() -> list[str]:
    """What COPY takes out of the checkout."""
    return [
        source
        for argument in arguments("COPY")
        if not argument.startswith("--from=")
        for source in argument.split()[:-1]
    ]


def test_every_copied_path_exists_and_is_sent_to_the_builder() -> None:
    kept = {line[1:] for line in page(".dockerignore").splitlines() if line.startswith("!")}
    assert "*" in page(".dockerignore").splitlines(), ".dockerignore keeps all else out"
    sources = copied_from_the_tree()
    assert {"requirements-server.lock", "pyproject.toml", "wal", "logqueue"} <= {
        source.removeprefix("./") for source in sources
    }
    for source in sources:
        assert (ROOT / source).exists(), f"COPY {source}: no such file"
        assert source.removeprefix("./") in kept, f"COPY {source}: .dockerignore keeps it out"


def test_files_that_the_build_reads_are_copied() -> None:
    project = page("pyproject.toml")
    for name in re.findall(r'"(README\.md|LICENSE)"', project):
        assert name in copied_from_the_tree(), f"pyproject.toml names {name}"


def test_all_stages_share_one_supported_base() -> None:
    bases = {argument.split()[0] for argument in arguments("FROM")}
    assert len(arguments("FROM")) >= 2, "built in one stage, run in another"
    assert len(bases) == 1, "an environment works only with the interpreter it was made by"
    (base,) = bases
    version = re.fullmatch(r"python:3\.(\d+)-slim", base)
    assert version is not None
    assert int(version[1]) >= 11


def test_everything_installed_is_locked() -> None:
    steps = [step.strip() for argument in arguments("RUN") for step in argument.split("&&")]
    fetching = [step for step in steps if re.search(r"\bpip\b.* (install|download|wheel)\b", step)]
    assert fetching
    for step in fetching:
        assert "--require-hashes" in step or "--no-index" in step, step
    assert any(
        "--require-hashes" in step and "requirements-server.lock" in step for step in fetching
    )


def test_it_does_not_run_as_root() -> None:
    stage = last_stage()
    users = [i for i, (name, _) in enumerate(stage) if name == "USER"]
    assert users, "no USER"
    assert stage[users[-1]][1].split(":")[0] not in {"root", "0"}
    assert all(i < users[-1] for i, (name, _) in enumerate(stage) if name in {"RUN", "COPY"})


def test_data_has_a_volume_that_the_user_owns() -> None:
    environment = dict(re.findall(r"(LOGQUEUE_\w+)=(\S+)", " ".join(arguments("ENV"))))
    assert arguments("VOLUME") == [environment["LOGQUEUE_DATA_DIR"]]
    assert any(
        "--owner=logqueue" in argument and environment["LOGQUEUE_DATA_DIR"] in argument.split()
        for name, argument in last_stage()
        if name == "RUN"
    )
    assert environment["LOGQUEUE_HOST"] == "0.0.0.0"
    assert arguments("EXPOSE") == [environment["LOGQUEUE_PORT"]]


def test_its_comments_say_that_it_needs_keys() -> None:
    comments = "\n".join(line for line in page("Dockerfile").splitlines() if line.startswith("#"))
    assert "-e LOGQUEUE_API_KEYS=" in comments
    assert "LOGQUEUE_ALLOW_INSECURE_NO_AUTH=1" in comments


def test_the_health_check_is_python_that_asks_for_readiness() -> None:
    (check,) = arguments("HEALTHCHECK")
    program, flag, code = json.loads(check.partition("CMD")[2])
    assert (program, flag) == ("python", "-c")
    ast.parse(code)
    assert "/v0/ready" in code
    assert "LOGQUEUE_PORT" in code


def test_the_command_is_ours() -> None:
    (command,) = arguments("CMD")
    assert json.loads(command) == ["logqueue", "serve"]


@pytest.mark.parametrize("pattern", ["*.py", "*.typed"])
def test_nothing_of_the_product_is_kept_out(pattern: str) -> None:
    excluded = [
        line
        for line in page(".dockerignore").splitlines()
        if line and not line.startswith(("#", "!")) and line != "*"
    ]
    for path in project_files():
        if path.startswith(("wal/", "logqueue/")) and fnmatchcase(path, pattern):
            assert not any(fnmatchcase(path, rule.removeprefix("**/")) for rule in excluded), path
