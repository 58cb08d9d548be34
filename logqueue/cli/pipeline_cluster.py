"""`logqueue pipeline pack` and `submit`: our code on the machines of a cluster.

Owns: the spark-submit line. Must not know: what is in the zip, how a session starts.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from logqueue.cli import exits, output
from logqueue.cli.exits import CommandError, UsageError
from logqueue.cli.pipeline_runs import refusals, settings
from logqueue.errors import quoted

ACTIONS = ("archive", "lifecycle", "report", "audit", "backfill", "redrive", "sql")
"""What runs on a cluster."""


def pack(arguments: argparse.Namespace) -> int:
    """Write our code as a zip."""
    with refusals():
        from logqueue.pipeline.engines.spark.session import packing

        packed = packing.pack(Path(arguments.output))
    if arguments.json:
        output.json_line(
            {"path": str(packed.path), "files": packed.files, "bytes": packed.bytes}
            | {"needed": list(packing.NEEDED)}
        )
        return exits.OK
    output.line(str(packed.path))
    output.say(
        f"{output.count_of(packed.files, 'file')}, {output.size(packed.bytes)}; for --py-files and "
        f"addArtifacts. The executors' Python must have {', '.join(packing.NEEDED)}: "
        "a zip cannot contain compiled packages."
    )
    return exits.OK


def submit(arguments: argparse.Namespace) -> int:
    """Print the command, and run it where that is asked for."""
    words = arguments.words
    if words[0] not in ACTIONS:
        raise UsageError(f"{quoted(words[0])} does not run on a cluster: use {', '.join(ACTIONS)}")
    with refusals():
        from logqueue.pipeline.engines.spark.session import packing

        packing.require_usable(arguments.py_files.split(","))
        zipped = Path(arguments.py_files)
        if "," not in arguments.py_files and not zipped.exists():
            packing.pack(zipped)
            output.say(f"made {zipped}")
    command = _command(arguments)
    output.line(shlex.join(command))
    if not arguments.is_run:
        return exits.OK
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise CommandError(f"{command[0]}cannot be run: {error.strerror}") from error


def _command(arguments: argparse.Namespace) -> list[str]:
    import logqueue

    program = Path(logqueue.__path__[0]) / "__main__.py"
    command = [_spark_submit(), "--master", arguments.master, "--py-files", arguments.py_files]
    for name, value in settings(arguments).items():
        command += ["--conf", f"{name}={value}"]
    return [*command, str(program), "pipeline", *arguments.words]


def _spark_submit() -> str:
    """The program of the Spark that SPARK_HOME names, else of the package pyspark, else any."""
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    homes = (
        [os.environ.get("SPARK_HOME"), spec.origin and str(Path(spec.origin).parent)]
        if (spec is not None)
        else [os.environ.get("SPARK_HOME")]
    )
    for home in homes:
        if home and (program := Path(home) / "bin" / "spark-submit").is_file():
            return str(program)
    return "spark-submit"
