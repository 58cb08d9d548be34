"""The files of deploy/: they name settings and metrics that there are, and their readers take them.

The readers are built by `make deploy-tools`; without them their tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from logqueue.server.settings import ENV_PREFIX, OPTIONS
from logqueue.version import __version__
from tests.house import ROOT, page

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "logqueue"
TOOLS = ROOT / "build" / "deploy-tools"
WANTED = ("--set", "apiKeys=s3cret", "--set", "replica.url=s3://bucket/prefix")
RULES = DEPLOY / "prometheus" / "alerts.yaml"
BOARD = DEPLOY / "grafana" / "logqueue.json"


def tool(name: str) -> str:
    """The program, or a skipped test."""
    found = shutil.which(name, path=f"{TOOLS}") or (
        shutil.which("helm") if name == "helm" else None
    )
    if found is None:
        pytest.skip(f"needs {name}: make deploy-tools")
    return found


def checked(kind: str, data: str) -> int:
    """How many objects, rules or expressions the readers of a file found, all of them valid."""
    ran = subprocess.run(
        [tool("check"), kind, "-"], input=data, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def template(*options: str) -> subprocess.CompletedProcess[str]:
    """What helm makes of the chart."""
    return subprocess.run(
        [tool("helm"), "template", "queue", str(CHART), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def deployed() -> Iterator[Path]:
    """Every file of deploy/."""
    return (path for path in sorted(DEPLOY.rglob("*")) if path.is_file())


def expressions() -> Iterator[str]:
    """The expressions of alerts, of the board, and of the scaler."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads(BOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    scaler: Any = yaml.safe_load((DEPLOY / "keda" / "scaledobject.yaml").read_text())
    yield from (trigger["metadata"]["query"] for trigger in scaler["spec"]["triggers"])


def test_every_variable_is_a_setting() -> None:
    known = {option.variable for option in OPTIONS}
    # Read by clients and by compose itself.
    known |= {f"{ENV_PREFIX}URL", f"{ENV_PREFIX}IMAGE"}
    named = {
        (path.name, name)
        for path in deployed()
        for name in re.findall(rf"\b{ENV_PREFIX}[A-Z_]+", path.read_text())
    }
    assert named and {name for _, name in named} <= known


def test_every_metric_of_alerts_and_boards_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", page("docs/operations.md")))
    found = {
        name.removesuffix("_bucket")
        for text in expressions()
        for name in re.findall(r"\b(?:logqueue|process)_\w+", text)
    }
    assert len(found) > 20
    assert found <= documented


def test_both_servers_of_the_composition_differ_in_place_only() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    a, b = services["a"], services["b"]
    assert a["environment"].pop("LOGQUEUE_ADVERTISE") != b["environment"].pop("LOGQUEUE_ADVERTISE")
    assert a["environment"] == b["environment"]
    # The image makes the place of the replica, so that its user may write there.
    assert "replica:/replica" in a["volumes"] and "/data /replica" in page("Dockerfile")


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def test_a_unit_says_what_starts() -> None:
    unit = (DEPLOY / "systemd" / "logqueue.service").read_text()
    assert "EnvironmentFile=/etc/logqueue/logqueue.env" in unit
    assert "LOGQUEUE_STANDBY=true" in (DEPLOY / "systemd" / "logqueue.env").read_text()
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return
    path = DEPLOY / "systemd" / "logqueue.service"
    ran = subprocess.run([verify, "verify", path], capture_output=True, text=True, check=False)
    problems = [line for line in ran.stderr.splitlines() if "logqueue.service" in line]
    # The program is not installed where tests run.
    assert not [line for line in problems if "is not executable" not in line], ran.stderr


@pytest.mark.parametrize(
    ("options", "objects"),
    [
        ((), 5),
        (("--set", "persistence.enabled=false"), 5),
        (("--set", "replicas=1"), 4),
        (("--set", "existingKeysSecret=mine", "--set", "apiKeys="), 4),
        (("--set", "replica.credentialsSecret=aws", "--set", "replica.env.AWS_REGION=eu-1"), 5),
        (("--set", "serviceMonitor.enabled=true", "--set", "serviceMonitor.tokenSecret=t"), 5),
        (("--set", "settings.LOGQUEUE_MAX_TOPICS=5", "--set", "service.port=4100"), 5),
    ],
)
def test_the_chart_makes_valid_objects(options: tuple[str, ...], objects: int) -> None:
    ran = template(*WANTED, *options)
    assert ran.returncode == 0, ran.stderr
    assert checked("objects", ran.stdout) == objects


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--set", "apiKeys=s3cret"), "set replica.url"),
        (("--set", "replica.url=s3://bucket"), "set apiKeys"),
        (
            (*WANTED, "--set", "persistence.enabled=false", "--set", "replica.mode=async"),
            "needs replica.mode=sync",
        ),
    ],
)
def test_the_chart_says_what_is_missing(options: tuple[str, ...], says: str) -> None:
    ran = template(*options)
    assert ran.returncode != 0 and says in ran.stderr


def test_prometheus_takes_the_alert_rules() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert checked("rules", RULES.read_text()) == len(rules)
    broken = RULES.read_text().replace("logqueue_ready == 0", "logqueue_ready ==")
    with pytest.raises(AssertionError, match="parse error"):
        checked("rules", broken)


def test_prometheus_takes_the_expressions_of_the_board() -> None:
    board = json.loads(BOARD.read_text())
    drawn = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert checked("dashboard", BOARD.read_text()) == len(drawn)
