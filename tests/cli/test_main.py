"""What holds for every command: help, statuses, errors, pipes, Ctrl-C, terminals."""

from __future__ import annotations

import argparse
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from functools import partial

import pytest

from logqueue import client as clients
from logqueue.cli.main import parser
from logqueue.client import Client
from logqueue.testing.process import ServerProcess
from tests.cli.conftest import END_S, Cli, Ended, Shell, finish
from tests.client.either import Naps


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command by name."""
    (action,) = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(action.choices)


@pytest.mark.parametrize("name", commands())
def test_help_has_examples_that_can_be_meant(name: str, cli: Cli) -> None:
    asked = cli(name, "--help")
    assert asked.status == 0 and asked.err == ""
    assert f"usage: logqueue {name}" in asked.out
    _, _, examples = asked.out.partition("\nexamples:\n")
    assert "logqueue " in examples
    assert max(map(len, asked.out.splitlines())) <= 110


def test_asking_for_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom logqueue.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'httpx', 'rich', 'uvicorn', 'shtab', 'asyncio', 'logqueue.client'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_without_a_command_it_shows_help_and_fails(cli: Cli) -> None:
    ended = cli()
    assert ended.status == 2 and "usage: logqueue" in ended.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("read",),
        ("read", "t", "--after", "-1"),
        ("read", "t", "--limit", "0"),
        ("claim", "q", "--lease", "soon"),
        ("append", "t"),
        ("append", "t", "file", "--data", "1"),
        ("append", "t", "-", "--chunk", "10001"),
        ("create", "t", "--set", "nonsense"),
        ("configure", "t"),
        ("ack", "q", "x"),
        ("ack", "q", "7:"),
        ("ack", "q", '{"seq": 7}'),
        ("jobs", "q", "--state", "ready,gone"),
        ("cancel", "q"),
        ("cancel", "q", "1", "--key", "k"),
        ("purge", "q"),
        ("purge", "q", "--all", "--state", "ready"),
        ("stats", "--every", "0s"),
        ("bench", "--batch", "1001"),
        ("topics", "--url", "nonsense"),
        ("topics", "--url", "http://a b"),
        ("topics", "--url", "http://localhost:65536"),
        ("topics", "--url", "http://localhost:4000/v0/"),
        ("topics", "--token", "n\u00f6"),
        ("completion", "tcsh"),
        ("worker", "tests.worker.slow_functions:app", "--metrics-port", "65536"),
        ("create", "\udcff"),
        ("append", "t", "--data", "1", "--tag", "\udcff"),
        ("--retry-for", "2s", "topics"),
    ],
)
def test_what_can_not_be_meant_is_status_2(arguments: tuple[str, ...], cli: Cli) -> None:
    ended = cli(*arguments)
    assert ended.status == 2 and ended.out == "" and ended.err
    assert "Traceback" not in ended.err


def test_an_option_before_the_command_is_named(cli: Cli) -> None:
    ended = cli("--retry-for", "2s", "topics")
    assert "unknown option before the command: --retry-for; put it after" in ended.err
    assert cli("--version").status == 0 and cli("--vers").status == 0


@pytest.mark.parametrize(
    "arguments",
    [("create", ""), ("append", "", "--data", "1"), ("drop", "", "--yes"), ("job", "", "1")],
)
def test_an_empty_name_is_said_to_be_empty(arguments: tuple[str, ...], cli: Cli) -> None:
    ended = cli(*arguments)
    assert ended.status in (1, 2) and "must not be empty" in ended.err


def test_no_server_is_one_line_that_says_what_to_do(cli: Cli) -> None:
    ended = cli("topics", "--url", "http://127.0.0.1:9", "--retry-for", "0")
    assert ended.status == 1 and ended.out == ""
    (line,) = ended.err.splitlines()
    assert line.startswith("logqueue topics: no server answers at http://127.0.0.1:9")
    assert "LOGQUEUE_URL" in line and "(connection refused)" in line


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize(
    ("retry_for", "is_told"), [("500ms", False), ("3s", True), ("30s", True), ("10m", True)]
)
def test_a_command_that_waits_for_the_server_says_so_once(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    retry_for: str,
    is_told: bool,
) -> None:
    """After a second: what it waits for, and until when."""
    naps = Naps()
    patient = partial(Client, clock=naps.clock, sleep=naps.sleep, chance=lambda: 0.5)
    monkeypatch.setattr(clients, "Client", patient)
    ended = cli("topics", "--url", "http://127.0.0.1:9", "--retry-for", retry_for, *flags)
    assert ended.status == 1 and ended.out == ""
    *told, _ = ended.err.splitlines()
    assert len(told) == is_told
    for line in told:
        assert re.fullmatch(
            r"logqueue: no server answers at http://127\.0\.0\.1:9 \(connection refused\); "
            r"retrying until \d\d:\d\d:\d\d \(--retry-for\)",
            line,
        )


def test_a_file_may_come_behind_flags(cli: Cli, topic: str) -> None:
    assert cli("append", topic, "--create", "--tag", "t", "-", stdin=b"1\n").status == 0
    for wrong in (("-", "-"), ("--nosuch",), ("file", "--nosuch")):
        ended = cli("append", topic, "--tag", "t", *wrong)
        assert ended.status == 2 and "unrecognized arguments" in ended.err


def test_the_server_may_be_named_before_the_command(
    cli: Cli, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGQUEUE_URL", "http://127.0.0.1:9")
    before = cli("--url", server.url, "create", "named-before", "--retry-for", "0")
    assert before.status == 0
    assert cli("--url", "http://127.0.0.1:9", "topics", "--url", server.url).status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", "nowhere"),
        ("tail", "nowhere"),
        ("watch", "nowhere"),
        ("stats", "nowhere"),
        ("claim", "nowhere"),
        ("ack", "nowhere", "1"),
        ("nack", "nowhere", "1"),
        ("extend", "nowhere", "1", "--lease", "1s"),
        ("drop", "nowhere", "--yes"),
        ("purge", "nowhere", "--all", "--yes"),
        ("work", "nowhere", "--exec", "true"),
        ("dead", "nowhere"),
        ("redrive", "nowhere"),
        ("append", "nowhere", "--data", "1"),
        ("topics", "--prefix", "nowhere"),
        ("routers", "delete", "nowhere"),
        ("schedules", "delete", "nowhere"),
        ("schedules", "run", "nowhere"),
        ("schedules", "show", "nowhere"),
        ("schedules", "list", "--prefix", "nowhere"),
        ("routers", "list", "--from", "nowhere"),
        ("check", "/nowhere"),
        ("backup", "/nowhere", "copy"),
    ],
)
def test_what_is_not_there_is_status_3(arguments: tuple[str, ...], cli: Cli) -> None:
    ended = cli(*arguments)
    assert ended.status == 3 and ended.out == ""
    (line,) = ended.err.splitlines()
    assert line.startswith(f"logqueue {arguments[0]}: ")


def test_keys_are_asked_for(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> None:
    folder = tmp_path_factory.mktemp("keys")
    with ServerProcess(folder / "data", API_KEYS="s3cret:read") as guarded:
        without = cli("topics", "--url", guarded.url)
        assert without.status == 1 and "--token or LOGQUEUE_TOKEN" in without.err
        reader = ("--url", guarded.url, "--token", "s3cret")
        assert cli("topics", *reader).status == 3
        refused = cli("create", "t", *reader)
        assert refused.status == 1 and "use a key that may do this" in refused.err


def test_whoever_has_seen_enough_may_close_the_pipe(
    shell: Shell, client: Client, topic: str
) -> None:
    client.append(topic, range(20_000), create=True)
    process = shell.start("read", topic)
    assert process.stdout is not None
    assert process.stdout.readline().split()[0] == b"1"
    process.stdout.close()
    process.stdout = None
    ended = finish(process)
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("name", ["tail", "watch", "stats"])
def test_ctrl_c_ends_it_without_a_word(name: str, shell: Shell, client: Client, topic: str) -> None:
    client.append(topic, [1], create=True)
    flags = {"tail": ("-f",), "watch": ("--from-start",), "stats": ("--watch", "--every", "1h")}
    process = shell.start(name, topic, *flags[name])
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert (ended.status, ended.err) == (130, "")


# -- terminals -----------------------------------------------------------------------------------


def on_terminal(shell: Shell, *arguments: str, types: bytes = b"", **variables: str) -> Ended:
    """Run a command on a terminal; both of its streams come back as one."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "logqueue", *arguments],
        env={**shell.environment, "TERM": "xterm-256color", "COLUMNS": "60", **variables},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    os.write(master, types)
    shown = b""
    try:
        while part := os.read(master, 65_536):
            shown += part
    except OSError:  # the other side is closed
        pass
    os.close(master)
    return Ended(process.wait(END_S), shown.decode(), "")


def test_colours_are_for_terminals_that_want_them(shell: Shell, queue: str, cli: Cli) -> None:
    assert "\x1b[1m" in on_terminal(shell, "topics").out
    assert "\x1b" not in on_terminal(shell, "topics", NO_COLOR="1").out
    assert "\x1b" not in cli("topics").out and queue in cli("topics").out


def test_a_narrow_terminal_cuts_what_is_long_and_nothing_else(
    shell: Shell, client: Client, queue: str
) -> None:
    client.append(queue, ["x" * 500], create=True)
    shown = on_terminal(shell, "claim", queue, NO_COLOR="1").out
    head, row = shown.replace("\r", "").splitlines()
    assert head.split() == ["seq", "lease", "run", "until", "data"]
    seq, lease, run, *_, data = row.split()
    assert (seq, run, data[-1]) == ("1", "1", "\u2026")
    assert client.ack(queue, 1).counted == [] and lease.startswith("lease_")
    assert len(row) <= 70


def test_text_from_elsewhere_never_reaches_a_terminal_raw(
    client: Client, topic: str, cli: Cli
) -> None:
    from logqueue.client import NewRecord

    client.append(topic, [NewRecord({"a": "\x1b[2J"}, tag="\x1b]0;x\x07")], create=True)
    shown = cli("read", topic)
    assert shown.status == 0 and "\x1b" not in shown.out and "\x07" not in shown.out


def test_a_terminal_is_asked_before_something_is_lost(
    shell: Shell, client: Client, topic: str, cli: Cli
) -> None:
    client.append(topic, [1, 2], create=True)
    unanswered = cli("drop", topic)
    assert unanswered.status == 2 and "--yes" in unanswered.err
    refused = on_terminal(shell, "drop", topic, types=b"n\n")
    assert refused.status == 1 and f"Delete log {topic} with 2 records? [y/N]" in refused.out
    assert "nothing was done" in refused.out
    assert client.topic(topic).count == 2
    assert on_terminal(shell, "drop", topic, types=b"y\n").status == 0
    assert cli("stats", topic).status == 3


def test_append_shows_its_progress_on_a_terminal(shell: Shell, topic: str) -> None:
    shell.folder.joinpath("records").write_text("1\n" * 50_000)
    shown = on_terminal(
        shell,
        "append",
        topic,
        str(shell.folder / "records"),
        "--chunk",
        "100",
        "--create",
        COLUMNS="120",
    )
    assert shown.status == 0, shown.out
    assert "50,000 records to" in shown.out


# -- completion ----------------------------------------------------------------------------------


def test_names_of_topics_are_completed(cli: Cli, client: Client, topic: str) -> None:
    client.put_topic(topic)
    assert topic in cli("completion", "topics").out.splitlines()
    for kind in ("bash", "zsh", "fish"):
        assert "logqueue completion topics" in cli("completion", kind).out
    gone = cli("completion", "topics", "--url", "http://127.0.0.1:9")
    assert (gone.out, gone.err) == ("", "") or gone.status == 2


def test_help_of_serve_tells_defaults(cli: Cli) -> None:
    told = " ".join(cli("serve", "--help").out.split())
    assert "(default: 4000)" in told and "(default: 127.0.0.1)" in told


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_knows_every_command(kind: str, cli: Cli) -> None:
    printed = cli("completion", kind)
    assert printed.status == 0
    for name in commands():
        assert name in printed.out
    program = shutil.which(kind)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=printed.out.encode(), capture_output=True)
        assert checked.returncode == 0, checked.stderr
