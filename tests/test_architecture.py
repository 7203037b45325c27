"""The floors of the house, and what is not done on them. Read from the source; nothing is imported."""

from __future__ import annotations

import ast
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# Every unit of src/weft has a floor. A unit imports from lower floors, and from itself.
FLOORS = {
    # core, and what is as plain
    "errors": 0,
    "incarnation": 0,
    "lru": 0,
    "masking": 0,
    "core": 1,
    "definition": 1,
    "expressions": 1,
    "clock": 2,
    "validator": 2,
    "drawing": 2,
    "envelope": 2,
    "logs": 2,
    "open_files": 2,
    "redis": 2,
    "settings": 2,
    "telemetry": 2,
    "tracing": 2,
    "triggers": 2,
    # ports
    "feed": 3,
    "handlers": 3,
    "journal": 3,
    "limits": 3,
    "store": 3,
    "transport": 3,
    # all of them by their contracts, as the movers are given them
    "ports": 4,
    # movers
    "orchestrator": 5,
    "worker": 5,
    # the read side
    "views": 5,
    # what puts them together
    "engine": 6,
    "fleet": 7,
    # interfaces
    "api": 8,
    "sdk": 8,
    "cli": 9,
    # what nobody inside imports: the tools for tests, and the public names
    "celery": 10,
    "testing": 10,
    "__main__": 11,
    "": 11,
}
# The units of the core know each other, but no module of one of them imports its way back to itself.
CORE = {"core", "definition", "expressions"}
PORTS = {unit for unit, floor in FLOORS.items() if floor == FLOORS["store"]}
MOVERS = {"ports", "orchestrator", "worker", "views"}

# What a mover may know of a port. The handlers themselves are adapters: the registry knows them.
OPEN_TO_MOVERS = {f"weft.{port}.contract" for port in PORTS} | {
    "weft.handlers.code_digest",
    "weft.handlers.http.outbound",
    "weft.handlers.outcome",
    "weft.handlers.registry",
    "weft.handlers.secrets",
    "weft.handlers.usercode",
}

# What the API reads of a journal, and every name it could come by. The engine is given the Journal.
ENGINE = {"orchestrator", "worker"}
NOT_FOR_THE_ENGINE = {"ApiPorts", "Catalog", "JournalAdapter", "catalog"}

NOT_IN_CORE = {
    "asyncio",
    "concurrent",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
    "uuid",
    "uuid_utils",
}

# Nobody but the clock asks the time. A child process has no clock of the engine's to ask.
TIME_IS_ASKED_IN = {
    "weft.clock",
    "weft.worker.child",
    "weft.worker.isolate",
}
ASKING_THE_TIME = {
    "date.today",
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.time",
    "time.time_ns",
}

# The wheel starts three kinds of process: the child that runs users' functions, the one that checks values
# against schemas, and the one that reads the workflows of Python files.
# Servers for tests are started, and installed, in tests/support.
PROCESSES_ARE_STARTED_IN = {"weft.sdk.flow_files", "weft.validator.process", "weft.worker.process"}
MODULES_THAT_START_PROCESSES = {"ensurepip", "multiprocessing", "pip", "pty", "subprocess", "venv"}
CALLS_THAT_START_A_PROCESS = {
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
    "loop.subprocess_exec",
    "loop.subprocess_shell",
    "os.fork",
    "os.forkpty",
    "os.popen",
    "os.posix_spawn",
    "os.posix_spawnp",
    "os.system",
}
NOT_IN_THE_WHEEL = {"bench", "examples", "tests"}

NAMES_THAT_SAY_NOTHING = {
    "base",
    "common",
    "helper",
    "helpers",
    "manager",
    "managers",
    "misc",
    "util",
    "utils",
}

# Each of these runs code that somebody wrote into data.
UNSAFE_MODULES = {"dill", "cloudpickle", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "yaml.full_load", "yaml.load", "yaml.load_all", "yaml.unsafe_load"}


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        return unit_of(self.name)

    def imports(self) -> Iterator[str]:
        """Every module imported anywhere in it, also inside functions and for types alone."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: a relative import; write the whole name"
                assert node.module is not None
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield whole if whole in MODULES else node.module

    def calls(self) -> Iterator[str]:
        """The names of all that is called, whole also where they were imported: ``time.time``."""
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
                first, dot, rest = name.partition(".")
                yield ".".join((imported.get(first, first) + dot + rest).split(".")[-2:])


def unit_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted((SOURCE / "weft").rglob("*.py"))}


def module(name: str, source: str) -> Module:
    return Module(name, ast.parse(source))


# --- The rules. Each gives a sentence for everything that breaks it.


def points_up(module: Module) -> Iterator[str]:
    for imported in module.imports():
        if not imported.startswith("weft."):
            if imported == "weft":
                yield f"{module.name} imports the public names of weft; import the module that has them"
            continue
        unit = unit_of(imported)
        if {unit, module.unit} <= CORE:
            continue
        if unit != module.unit and FLOORS[unit] >= FLOORS[module.unit]:
            yield f"{module.name} imports {imported}, which is not on a lower floor"


def knows_an_adapter(module: Module) -> Iterator[str]:
    if module.unit not in MOVERS:
        return
    for imported in module.imports():
        if unit_of(imported) in PORTS and imported.startswith("weft.") and imported not in OPEN_TO_MOVERS:
            yield f"{module.name} imports {imported}; a mover knows contracts only"


def names_the_catalog(module: Module) -> Iterator[str]:
    if module.unit not in ENGINE:
        return
    for node in ast.walk(module.tree):
        names = {value for _, value in ast.iter_fields(node) if isinstance(value, str)}
        for name in names & NOT_FOR_THE_ENGINE:
            yield f"{module.name} names {name}; the engine knows the Journal alone"


def is_impure(module: Module) -> Iterator[str]:
    if module.unit not in CORE:
        return
    for imported in module.imports():
        if imported in NOT_IN_CORE or imported.split(".")[0] in NOT_IN_CORE:
            yield f"{module.name} imports {imported}; the core does no I/O and knows no clock and no chance"
    for call in module.calls():
        if call in ASKING_THE_TIME or call in ("open", "print", "input"):
            yield f"{module.name} calls {call}()"


def asks_the_time(module: Module) -> Iterator[str]:
    if module.name not in TIME_IS_ASKED_IN:
        for call in module.calls():
            if call in ASKING_THE_TIME:
                yield f"{module.name} calls {call}(); take a Clock"


def starts_a_process(module: Module) -> Iterator[str]:
    if module.name in PROCESSES_ARE_STARTED_IN:
        return
    for imported in module.imports():
        if imported.split(".")[0] in MODULES_THAT_START_PROCESSES:
            yield f"{module.name} imports {imported}; only workers start processes"
    for call in module.calls():
        if call in CALLS_THAT_START_A_PROCESS or call.startswith(("os.exec", "os.spawn")):
            yield f"{module.name} calls {call}()"


def imports_what_is_not_shipped(module: Module) -> Iterator[str]:
    for imported in module.imports():
        if imported.split(".")[0] in NOT_IN_THE_WHEEL:
            yield f"{module.name} imports {imported}, which is not in the wheel"


def says_nothing_by_its_name(module: Module) -> Iterator[str]:
    if NAMES_THAT_SAY_NOTHING & set(module.name.split(".")):
        yield f"{module.name} is not named after what a reader comes for"


def is_unsafe(module: Module) -> Iterator[str]:
    for imported in module.imports():
        if imported.split(".")[0] in UNSAFE_MODULES:
            yield f"{module.name} imports {imported}, which runs what it reads"
    for call in module.calls():
        if call in UNSAFE_CALLS:
            yield f"{module.name} calls {call}()"


Rule = Callable[[Module], Iterator[str]]

RULES: tuple[Rule, ...] = (
    points_up,
    knows_an_adapter,
    names_the_catalog,
    is_impure,
    asks_the_time,
    starts_a_process,
    imports_what_is_not_shipped,
    says_nothing_by_its_name,
    is_unsafe,
)


def test_the_wheel_holds_what_the_rules_read_and_nothing_else() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    # The hook adds the pages of docs/, which are Markdown; tests/operation/test_wheel.py lists them.
    wheel = {"packages": ["src/weft"], "hooks": {"custom": {}}}
    assert project["tool"]["hatch"]["build"] == {"targets": {"wheel": wheel}}


def test_every_unit_has_a_floor() -> None:
    assert {unit_of(name) for name in MODULES} <= FLOORS.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module(rule: Rule) -> None:
    broken = [
        sentence
        for name, path in MODULES.items()
        for sentence in rule(module(name, path.read_text(encoding="utf-8")))
    ]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (points_up, "weft.definition.graph", "from weft.settings import Settings"),
        (points_up, "weft.store.memory", "from weft import journal"),
        (points_up, "weft.definition.graph", "def f():\n    import weft.cli.main"),
        (points_up, "weft.cli.main", "from weft import run"),
        (knows_an_adapter, "weft.orchestrator.advance", "from weft.handlers.echo import HANDLER"),
        (knows_an_adapter, "weft.worker.run", "from weft.handlers import echo"),
        (names_the_catalog, "weft.orchestrator.submit", "from weft.journal.contract import Catalog as C"),
        (names_the_catalog, "weft.worker.run", "import weft.ports as p\ndef f(ports: p.ApiPorts): ..."),
        (names_the_catalog, "weft.orchestrator.submit", "ports.catalog.batch('x')"),
        (is_impure, "weft.definition.graph", "import os.path"),
        (is_impure, "weft.definition.graph", "from datetime import datetime as d\nd.now()"),
        (asks_the_time, "weft.cli.local", "import time\ntime.monotonic()"),
        (asks_the_time, "weft.cli.local", "from time import time as now\nnow()"),
        (asks_the_time, "weft.cli.local", "import datetime\ndatetime.datetime.now(datetime.UTC)"),
        (starts_a_process, "weft.testing.plugin", "def f():\n    import subprocess"),
        (starts_a_process, "weft.testing.mocks", "from multiprocessing import Process"),
        (
            starts_a_process,
            "weft.testing.mocks",
            "from asyncio import create_subprocess_exec as run\nrun('redis')",
        ),
        (starts_a_process, "weft.testing.mocks", "import os\nos.execvp('apt-get', [])"),
        (
            imports_what_is_not_shipped,
            "weft.testing.plugin",
            "from tests.support.servers.redis import RedisServer",
        ),
        (says_nothing_by_its_name, "weft.core.utils", ""),
        (is_unsafe, "weft.definition.graph", "import pickle"),
        (is_unsafe, "weft.definition.graph", "eval('1')"),
        (is_unsafe, "weft.definition.graph", "import yaml\nyaml.load('')"),
    ],
)
def test_a_rule_sees_what_breaks_it(rule: Rule, name: str, source: str) -> None:
    assert list(rule(module(name, source)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "weft.orchestrator.advance",
            "from weft.store.contract import StateStore\nfrom weft.core import state",
        ),
        ("weft.orchestrator.submit", "from weft.journal.contract import Journal"),
        ("weft.cli.main", "from weft.sdk.loading import load"),
        ("weft.core.time", "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
    ],
)
def test_what_is_right_breaks_no_rule(name: str, source: str) -> None:
    assert [sentence for rule in RULES for sentence in rule(module(name, source))] == []


# -- what a reader meets ---------------------------------------------------------------------------

_MOST_LINES, _MOST_PARAMETERS = 60, 8
# What the flags of a command and the public face of WorkflowDAG are made of.
_WIDE_BY_CONTRACT = {
    ("weft.cli.remote", "list_"),
    ("weft.cli.remote", "start"),
    ("weft.sdk.calls", "executions"),
    ("weft.sdk.dag", "add_step"),
}
# Shapes of the REST API, in the server and in the client: their names are the API's.
_WIRE_MODELS = {"weft.api.schema", "weft.sdk.shapes"}
_MOST_NAMES_TWICE = 5
_OPENINGS_OF_SPEECH = {"Say", "Give"}
_OPENINGS_OF_A_CLAUSE = {"What", "How", "Who", "Whoever", "It", "This", "These", "Those", "Such"}
# Subjects are checked from here on.
_SUBJECTS_SINCE = "2026-11-18T05:41:00+00:00"


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for name, path in MODULES.items():
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def test_functions_are_short_and_take_few_parameters() -> None:
    broken = []
    for name, tree in _trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = [one for one in given if one.arg not in ("self", "cls")]
            is_wide = len(parameters) > _MOST_PARAMETERS and (name, node.name) not in _WIDE_BY_CONTRACT
            if lines > _MOST_LINES or is_wide:
                broken.append(f"{name}.{node.name}: {lines} lines, {len(parameters)} parameters")
    assert broken == []


def test_hardly_a_class_name_occurs_twice() -> None:
    homes: dict[str, set[str]] = {}
    for name, tree in _trees():
        if name not in _WIRE_MODELS:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, set()).add(name)
    twice = {name: sorted(where) for name, where in homes.items() if len(where) > 1}
    assert len(twice) <= _MOST_NAMES_TWICE, twice


def test_the_core_is_the_state_machine_alone() -> None:
    """Every file counts, also those of ``ledger/`` and the empty ones."""
    assert len(list((SOURCE / "weft" / "core").rglob("*.py"))) <= 22


def families(paths: Iterator[Path]) -> list[str]:
    """Return the first words that three or more files and folders of one folder share."""
    found: dict[tuple[Path, str], set[str]] = {}
    for path in paths:
        if not path.name.startswith("_"):
            found.setdefault((path.parent, path.stem.split("_")[0]), set()).add(path.stem)
    return [f"{folder}/{word}_*" for (folder, word), names in sorted(found.items()) if len(names) > 2]


def test_a_family_of_files_is_a_folder() -> None:
    """Not ``store_contract``, ``store_ahead_contract``, ``store_parked_contract`` side by side."""
    assert families(Path("x") / f"{name}.py" for name in ("a", "a_b", "a_c", "ab", "b", "b_c")) == ["x/a_*"]
    sources = (SOURCE / "weft").rglob("*")
    assert families(path for path in sources if path.suffix == ".py" or path.is_dir()) == []


def test_the_orchestrator_has_few_modules() -> None:
    """Beside these, a folder for each subject of its own."""
    files = [path for path in (SOURCE / "weft" / "orchestrator").glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= 12


def test_no_module_imports_its_way_back_to_itself() -> None:
    """Imports for types count: a reader follows those, too."""
    imports: dict[str, set[str]] = {}
    for name, tree in _trees():
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for one in node.names:
                    module = f"{node.module}.{one.name}"
                    found.add(module if module in MODULES else node.module)
        imports[name] = (found & MODULES.keys()) - {name}
    # Take away what imports nothing that is left, until nothing more goes: what stays is on a cycle.
    while free := [name for name, found in imports.items() if not found & imports.keys()]:
        for name in free:
            del imports[name]
    assert sorted(imports) == []


def test_docstrings_open_with_what_is_returned_or_done() -> None:
    """In the words of the domain: not a clause ("What the journal holds …"), not a verb of speech."""
    paths = [*MODULES.values(), *sorted((SOURCE.parent / "tests").rglob("*.py"))]
    broken = []
    for path in paths:
        in_src = path.is_relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                first = (ast.get_docstring(node) or "").split(" ", 1)[0]
                if first in _OPENINGS_OF_SPEECH or (in_src and first in _OPENINGS_OF_A_CLAUSE):
                    name = getattr(node, "name", "")
                    broken.append(f"{path.relative_to(SOURCE.parent)} {name}: {first} …")
    assert broken == []


def test_subjects_of_commits_fit_in_a_line() -> None:
    """A clone may be shallow, or be no repository at all: then there is less to look at."""
    git = shutil.which("git")
    if git is None or not (SOURCE.parent / ".git").exists():
        return
    log = subprocess.run(
        [git, "log", "--no-merges", f"--since={_SUBJECTS_SINCE}", "--format=%s"],
        cwd=SOURCE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [subject for subject in log.stdout.splitlines() if len(subject) > 72] == []
