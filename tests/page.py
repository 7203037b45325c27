"""A page of the documentation, done as a reader does it: its files written, its commands typed, in its order.

The folder is empty at first, no server runs, and nothing is set: there is what the page has said so far. A
fence says how it is meant by the words behind its language:

- ``python``: saved and run as a script. A ``text output`` block right behind it is what the script prints.
  With ``shown`` it only has to be Python: a program for another tool.
- ``yaml``: a whole definition that validates; with ``invalid`` one that does not, and with ``fragment`` a
  part of one, which only has to be YAML.
- ``console``: each line ``$ weft …`` (or of another of ``PROGRAMS``) is run and has to end with code 0, or
  with the N of ``exit=N``. The lines under it are its output in any order; ``…`` stands for lines left out.
  ``$ NAME=…`` and ``$ export NAME=…`` keep a value for the rest of the page, and so does ``$ cd …``; an
  ``export`` of what a server of the page gives, or with ``…`` in it, changes nothing.
- ``$ python -m … &`` is a language model: it stays to the end of the page, on a port that is free, and the
  commands behind it find it at ``WEFT_LLM_BASE_URL``.
- ``$ weft up`` and ``$ weft dev`` start a server, on a port that is free, with the settings before them. The
  rest of the page finds it at ``WEFT_URL``; the next takes its place. With ``exit=N`` it does not come up.
- ``clone``: from such a block on the folder has the examples, as a clone has them.
- ``fleet``: from such a block on the settings name a Redis and a database of the page's own. There
  ``$ weft api``, ``orchestrator`` and ``worker`` stay beside each other to the end of the page. With
  ``celery`` the settings name a broker too, and ``$ celery … worker`` stays like them.
- ``sh``: each line is run as one of ``console``; a server is seen ready, and stopped. Those of ``NOT_RUN``
  are for a clone, whose set-up a test does not repeat.
- ``title="name"``: the block is also a file of that name, for what stands behind it; a second block of that
  name takes its place. ``mode="600"``: the file has that mode.

Times, ids, ports and the folders of files in a traceback differ from run to run and are not compared. Blocks
of other languages are not run. A command of a program that nobody runs here is an error.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent

# Nothing here takes a tenth of this; a page that hangs should say so, and not hang the suite.
SECONDS_BEFORE_GIVING_UP = 120

FENCE = re.compile(
    r"^```(?P<language>\w+)(?P<marks>[^\n]*)\n(?P<text>.*?)^```$", flags=re.MULTILINE | re.DOTALL
)
DIFFERS = re.compile(
    r"(?P<id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})|\d+(\.\d+)? m?s\b"
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:\d\d)?|(?<=127\.0\.0\.1:)\d+"
    r"|(?<=File \")[^\"]*/|\b\d\d:\d\d:\d\d\.\d{3}\b([+-]\d\d:\d\d)?"
)
# Columns are as wide as what is in them, and that differs, too.
GAP = re.compile(r"(?<=\S) {2,}")
LEFT_OUT = "…"

ASSIGNMENT = re.compile(r"[A-Z_]+=")
MODEL = re.compile(r"^python (?P<arguments>-m .*) &$")
PROGRAMS = ("weft ", "pytest ", "python -m ", "kill ", "sleep ", "mkdir ")
NOT_RUN = ("./dev ", "git clone ", "python -m tests.", "export PATH=")
SQLITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1], uri=True).execute(sys.argv[2]).fetchall()"
EXPORTED = re.compile(r"([A-Z_]+)=(\S+)")
SERVER = re.compile(r"^([A-Z_]+=('[^']*'|\S+) )*weft (?P<role>up|dev|api|orchestrator|worker)\b(?!.*--help)")
CELERY = re.compile(r"^celery .*\bworker\b")
READY = re.compile(r"^weft( \w+)? is ready( at (?P<url>\S+))?|celery@.* ready\.")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def mark(self, name: str) -> str | None:
        """Return the value of ``name=value`` among the marks."""
        found = (mark.partition("=")[2].strip('"') for mark in self.marks if mark.startswith(f"{name}="))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    shown: list[str]


def blocks_of(page: Path) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            source.count("\n", 0, match.start()) + 1,
            match["language"],
            tuple(match["marks"].split()),
            match["text"],
        )
        for match in FENCE.finditer(source)
    ]


def commands_of(block: Block) -> Iterator[Command]:
    command: Command | None = None
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line.removeprefix("$ "), [])
        else:
            assert command is not None, f"{block.place}: output without a command: {line}"
            command.shown.append(line)
    if command is not None:
        yield command


def differences(shown: Sequence[str], printed: str) -> list[str]:
    """List the lines that are shown and were not printed; and where none are left out, the reverse."""
    expected, found = _comparable(shown), _comparable(printed.splitlines())
    leaves_out = expected.pop(LEFT_OUT, 0) > 0
    missing = [f"not printed: {line}" for line in (expected - found).elements()]
    return missing + ([] if leaves_out else [f"not shown: {line}" for line in (found - expected).elements()])


def _comparable(lines: Sequence[str]) -> Counter[str]:
    return Counter(GAP.sub("  ", DIFFERS.sub("•", line.rstrip())) for line in lines)


class Reader:
    """Does what a page shows, in a folder of its own, where ``weft`` is on the path and nothing is set."""

    def __init__(self, folder: Path, *, database_url: Callable[[], str]) -> None:
        """``database_url`` gives a PostgreSQL database for this page alone, where it asks for one."""
        self._folder = folder
        self._database_url = database_url
        # Where what is typed is done; `cd` changes it.
        self._place = folder
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WEFT_")
        }
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._environment['PATH']}"
        # What servers of the page have set.
        self._given = {"WEFT_URL"}
        self._server: _Server | None = None
        self._fleet = ExitStack()
        self._has_fleet = False
        self._printed = ""

    def read(self, page: Path) -> None:
        """Do all that a page shows, and hold what it says against what happens."""
        try:
            for block in blocks_of(page):
                self._do(block)
        finally:
            self._stop_server()
            self._fleet.close()

    def _write(self, block: Block) -> None:
        title = block.mark("title")
        if title is not None:
            file = self._place / title
            file.write_text(block.text, encoding="utf-8")
            if (mode := block.mark("mode")) is not None:
                file.chmod(int(mode, 8))

    def _do(self, block: Block) -> None:
        self._write(block)
        if "clone" in block.marks:
            shutil.copytree(
                ROOT / "examples", self._place / "examples", ignore=shutil.ignore_patterns("__pycache__")
            )
        if "fleet" in block.marks and not self._has_fleet:
            self._start_fleet(on_celery="celery" in block.marks)
        match block.language:
            case "python" if "shown" in block.marks:
                ast.parse(block.text)
            case "python":
                self._run_script(block)
            case "text" if "output" in block.marks:
                found = differences(block.text.splitlines(), self._printed)
                assert not found, f"{block.place}: {found}\n{self._printed}"
            case "console":
                for command in commands_of(block):
                    self._type(command, block)
            case "sh":
                for line in block.text.splitlines():
                    if not line.startswith(NOT_RUN):
                        self._type(Command(line, []), block)
                self._stop_server()
            case _:
                pass

    def _run_script(self, block: Block) -> None:
        script = self._place / (block.mark("title") or f"block_{block.line}.py")
        script.write_text(block.text, encoding="utf-8")
        ended = self._run([sys.executable, script.name])
        assert ended.returncode == 0, f"{block.place}:\n{ended.stdout}"
        self._printed = ended.stdout

    def _type(self, command: Command, block: Block) -> None:
        line = re.sub(r"^\./dev run\s*(#.*)?$", "weft run examples/quickstart.yaml", command.line)
        line = re.sub(r"^\./dev run ", "weft ", line)
        server, model = SERVER.match(line), MODEL.match(line)
        if line.startswith("cd "):
            self._place /= line.removeprefix("cd ").partition("#")[0].strip()
            return
        if line.startswith("export "):
            self._export(line)
            return
        if model:
            printed = self._start_model(shlex.split(model["arguments"]))
        elif server and block.mark("exit") is None:
            printed = self._start_server(line) if server["role"] in ("up", "dev") else self._start_role(line)
        elif CELERY.match(line):
            printed = self._start_role(line)
        elif line.startswith("sqlite3 "):
            self._ask_sqlite(line, block)
            return
        else:
            assert ASSIGNMENT.match(line) or line.startswith(PROGRAMS), f"{block.place}: nobody runs {line}"
            # What is assigned is for the commands behind it as well.
            kept = self._folder / ".environment"
            ended = self._run(["sh", "-c", f"set -a\n{line}\ncode=$?\nenv -0 >{kept}\nexit $code"])
            code = int(block.mark("exit") or 0)
            assert ended.returncode == code, f"{block.place}: {command.line}\n{ended.stdout}"
            self._environment = _read_environment(kept.read_text(encoding="utf-8"))
            printed = ended.stdout
        if command.shown:
            found = differences(command.shown, printed)
            assert not found, f"{block.place}: {found}\n{printed}"

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments,
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_BEFORE_GIVING_UP,
        )

    def _export(self, line: str) -> None:
        for name, value in EXPORTED.findall(line):
            if name not in self._given and LEFT_OUT not in value:
                self._environment[name] = value

    def _ask_sqlite(self, line: str, block: Block) -> None:
        """Do what the program of SQLite would: it is not everywhere where Python is."""
        *flags, file, sql = shlex.split(line)[1:]
        mode = "ro" if "-readonly" in flags else "rw"
        ended = self._run([sys.executable, "-c", SQLITE, f"file:{file}?mode={mode}", sql])
        assert ended.returncode == 0, f"{block.place}: {line}\n{ended.stdout}"

    def _give(self, settings: Mapping[str, str]) -> None:
        self._environment |= settings
        self._given |= settings.keys()

    def _start_server(self, line: str) -> str:
        self._stop_server()
        self._server = _Server(line, self._place, self._environment)
        printed = self._server.wait()
        self._environment["WEFT_URL"] = self._server.url
        return printed

    def _start_fleet(self, *, on_celery: bool) -> None:
        self._has_fleet = True
        redis = self._fleet.enter_context(RedisServer())
        self._give({"WEFT_REDIS_URL": redis.url, "WEFT_DATABASE_URL": self._database_url()})
        if on_celery:
            self._give({"WEFT_TRANSPORT": "celery", "WEFT_CELERY_BROKER_URL": redis.url_of(1)})

    def _start_model(self, arguments: Sequence[str]) -> str:
        process = subprocess.Popen(
            [sys.executable, *arguments, "--port", "0"],
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._fleet.callback(_end, process)
        assert process.stdout is not None
        printed = process.stdout.readline()
        self._give({"WEFT_LLM_BASE_URL": printed.strip()})
        return printed

    def _start_role(self, line: str) -> str:
        server = _Server(line, self._place, self._environment)
        self._fleet.callback(server.stop)
        printed = server.wait()
        if server.url:
            self._environment["WEFT_URL"] = server.url
        return printed

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None
            self._environment.pop("WEFT_URL", None)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=SECONDS_BEFORE_GIVING_UP)


def _read_environment(text: str) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in text.split("\0") if entry)
    return {name: value for name, _, value in pairs if name != "code"}


class _Server:
    """``weft up``, or a role of a fleet, on a terminal, as it was typed but for its port."""

    def __init__(self, line: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.url = ""
        words = shlex.split(line, comments=True)
        program = "celery" if CELERY.match(line) else "weft"
        settings = dict(word.split("=", 1) for word in words[: words.index(program)])
        at_role = words.index(program) + 1
        self._role, flags = words[at_role], words[at_role + 1 :]
        for at in (index + 1 for index, word in enumerate(flags) if word == "--data"):
            flags[at] = str(folder / flags[at].lstrip("/"))
        if "--port" in flags:
            del flags[flags.index("--port") : flags.index("--port") + 2]
        if self._role in ("up", "dev", "api"):
            flags += ["--port", "0"]
        self._terminal, theirs = os.openpty()
        self._process = subprocess.Popen(
            [program, self._role, *flags],
            cwd=folder,
            env={**environment, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        self._printed: list[str] = []
        self._is_ready = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def wait(self) -> str:
        """Return what it has printed by the time it is ready."""
        assert self._is_ready.wait(SECONDS_BEFORE_GIVING_UP), f"the server is not ready: {self._printed}"
        assert self._process.poll() is None, f"the server ended: {self._printed}"
        return "\n".join(self._printed)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(SECONDS_BEFORE_GIVING_UP)
        finally:
            self._process.kill()
            self._reading.join(SECONDS_BEFORE_GIVING_UP)

    def _read(self) -> None:
        # A terminal ends with an error, when the last that wrote to it has gone.
        with suppress(OSError), open(self._terminal, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._printed.append(line.rstrip())
                ready = READY.search(line)
                if ready is not None:
                    self.url = ready["url"] or ""
                    self._is_ready.set()
        self._is_ready.set()
