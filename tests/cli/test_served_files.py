"""``weft dev`` and ``weft up FILE.py``: a real server that serves the workflows of Python files."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest

from weft.cli.main import main
from weft.errors import DocumentError
from weft.sdk.client import Client
from weft.sdk.flow_files import read_files
from weft.sdk.source_tree import SourceTree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_SECONDS = 60

FLOW = """\
from weft import Workflow, handler

flow = Workflow("greet")


@handler("loud", config_schema={"type": "object", "required": ["text"]})
def loud(config, context):
    return config["text"].upper()


@flow.node(max_retries=0)
def hello(input):
    return "hello " + input["nme"]


shout = flow.node(id="shout", handler="loud", dependencies=[hello], config={"text": "{{ hello.output }}"})
"""


class Served:
    """A server process, its client, and the events that it logs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._events: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        # Those that the server logs before it is ready.
        self.first: list[dict[str, Any]] = []
        while (event := self._events.get(timeout=PATIENCE_SECONDS))["event"] != "server.ready":
            self.first.append(event)
        # A server is ready once the workflows of its files are stored.
        self.deployed = [event for event in self.first if event["event"] == "workflow.deployed"]
        self.client = Client(event["url"])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("{"):
                self._events.put(json.loads(line))

    def until(self, name: str) -> dict[str, Any]:
        """Return the next logged event of a name."""
        while (event := self._events.get(timeout=PATIENCE_SECONDS))["event"] != name:
            pass
        return event


@contextmanager
def serving(*arguments: str, folder: Path, **settings: str) -> Iterator[Served]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    environment |= settings
    command = [sys.executable, "-m", "weft", *arguments, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        try:
            served = Served(process)
            with served.client:
                yield served
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()


def test_a_bug_is_found_mended_and_retried_without_a_restart(tmp_path: Path) -> None:
    flows = tmp_path / "flows.py"
    flows.write_text(FLOW)
    with serving("dev", "flows.py", folder=tmp_path) as served:
        client = served.client
        assert [event["version"] for event in served.deployed] == [1]
        failed = client.wait(client.start("greet", {"name": "ann"}).id)
        detail = client.node(failed.id, "hello")
        assert detail.error is not None
        assert 'input["nme"]' in detail.error.details["traceback"]

        flows.write_text(FLOW.replace("nme", "name"))
        served.until("code.replaced")
        client.retry(failed.id)
        done = client.wait(failed.id)
        assert (done.state, done.output) == ("COMPLETED", {"shout": "HELLO ANN"})
        changed = served.until("code.changed")
        assert (changed["node"], changed["attempt"], changed["since_attempt"]) == ("hello", 2, 1)
        noted = [(line.attempt, line.message) for line in client.logs(failed.id, node="hello", level="INFO")]
        assert noted == [(2, "code changed since attempt 1")]
        # Only the body of a function changed: the definition is the same version.
        assert client.workflow("greet").version == 1

        flows.write_text(FLOW.replace("nme", "name").replace("[hello]", "[hello], max_retries=1"))
        assert served.until("workflow.deployed")["version"] == 2


def test_changed_code_is_noted_after_a_restart_too_and_only_for_what_the_function_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "words.py").write_text("WORD = 'none'\n")
    (tmp_path / "other.py").write_text("OTHER = 1\n")
    (tmp_path / "flows.py").write_text(
        "from weft import Workflow\nfrom words import WORD\n\nflow = Workflow('noted')\n\n\n"
        "@flow.node(max_retries=0)\ndef word():\n    return {'some': WORD}[WORD]\n"
    )

    def noted(client: Client, execution: str) -> list[tuple[int, str]]:
        return [(line.attempt, line.message) for line in client.logs(execution, level="INFO")]

    with serving("dev", "flows.py", folder=tmp_path) as served:
        failed = served.client.wait(served.client.start("noted").id)
        (tmp_path / "other.py").write_text("OTHER = 2\n")
        served.until("code.replaced")
        served.client.retry(failed.id)
        assert served.client.wait(failed.id).state == "FAILED"
        assert noted(served.client, failed.id) == []
    (tmp_path / "words.py").write_text("WORD = 'some'\n")
    with serving("up", "flows.py", folder=tmp_path) as served:
        served.client.retry(failed.id)
        assert served.client.wait(failed.id).output == {"word": "some"}
        assert noted(served.client, failed.id) == [(3, "code changed since attempt 2")]


def test_a_broken_file_is_told_with_its_line_and_the_old_code_goes_on(tmp_path: Path) -> None:
    flows = tmp_path / "flows.py"
    good = FLOW.replace("nme", "name")
    flows.write_text(good)
    with serving("dev", folder=tmp_path) as served:
        first = served.client.wait(served.client.start("greet", {"name": "ann"}).id)
        assert first.state == "COMPLETED"
        flows.write_text(good + "\n\ndef broken(:\n")
        problem = served.until("code.broken")["problem"]
        assert "flows.py" in problem
        assert f"line {len(good.splitlines()) + 3}" in problem
        second = served.client.wait(served.client.start("greet", {"name": "bob"}).id)
        assert second.output == {"shout": "HELLO BOB"}
        flows.write_text(good.replace('"hello "', '"hi "'))
        served.until("code.replaced")
        third = served.client.wait(served.client.start("greet", {"name": "bob"}).id)
        assert third.output == {"shout": "HI BOB"}


def test_a_child_process_that_starts_after_a_file_was_broken_runs_what_was_served_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "words.py").write_text("def word():\n    return 'hello'\n")
    good = (
        "import os\n\nfrom weft import Workflow\n\nflow = Workflow('late')\n\n\n"
        "@flow.node(max_retries=0)\ndef greet(input):\n    import words\n\n"
        "    if input.get('fails'):\n        raise ValueError(words.word())\n"
        "    return [words.word(), os.getpid()]\n"
    )
    flows = tmp_path / "flows.py"
    flows.write_text(good)
    with serving("dev", "flows.py", folder=tmp_path) as served:
        client = served.client
        # No function was called yet: no child process has imported the file.
        flows.write_text("import nothere\n" + good)
        assert "nothere" in served.until("code.broken")["problem"]
        first = client.wait(client.start("late").id)
        assert first.state == "COMPLETED", first.error
        word, pid = first.output["greet"]
        os.kill(pid, signal.SIGKILL)
        second = client.wait(client.start("late").id)
        assert second.state == "COMPLETED", second.error
        assert (word, second.output["greet"][0]) == ("hello", "hello")
        assert second.output["greet"][1] != pid
        # The lines that ran, not those of the file.
        failed = client.wait(client.start("late", {"fails": True}).id)
        error = client.node(failed.id, "greet").error
        assert error is not None
        assert "line 13, in greet\n    raise ValueError(words.word())\n" in error.details["traceback"]


def flow_of(name: str, *, says: str, imports: str = "") -> str:
    return (
        f"{imports}from weft import Workflow\n\nflow = Workflow('{name}')\n\n\n"
        f"@flow.node\ndef say():\n    return {says}\n"
    )


def test_a_broken_file_holds_up_no_other_and_a_new_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import nothere\n" + flow_of("bad", says="1"))
    (tmp_path / "good.py").write_text(flow_of("good", says="1"))
    with serving("dev", folder=tmp_path) as served:
        client = served.client

        def output(name: str) -> Any:
            return client.wait(client.start(name).id).output

        assert [
            "bad.py" in event["problem"] for event in served.first if event["event"] == "code.broken"
        ] == [True]
        assert [event["workflow"] for event in served.deployed] == ["good"]
        assert output("good") == {"say": 1}
        (tmp_path / "new.py").write_text(flow_of("new", says="WORD", imports="from words import WORD\n"))
        (tmp_path / "words.py").write_text("WORD = 'hello'\n")
        assert served.until("workflow.deployed")["workflow"] == "new"
        assert output("new") == {"say": "hello"}
        # Now `new` is broken by what it imports, and goes on as it was; `good` and `bad` change.
        (tmp_path / "words.py").write_text("WORD = undefined\n")
        assert "words.py" in served.until("code.broken")["problem"]
        (tmp_path / "good.py").write_text(flow_of("good", says="2"))
        served.until("code.replaced")
        assert (output("new"), output("good")) == ({"say": "hello"}, {"say": 2})
        (tmp_path / "bad.py").write_text(flow_of("bad", says="3"))
        assert served.until("workflow.deployed")["workflow"] == "bad"
        assert (output("new"), output("bad")) == ({"say": "hello"}, {"say": 3})
        (tmp_path / "good.py").write_text("from weft import Workflow\nflow = Workflow('good', nodes=1)\n")
        assert "good.py" in served.until("code.broken")["problem"]
        assert output("good") == {"say": 2}


def test_a_module_beside_the_file_is_taken_up_too(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text('WORD = "hello"\n')
    (tmp_path / "flows.py").write_text(
        'import words\nfrom weft import Workflow\n\nflow = Workflow("word")\n\n\n'
        "@flow.node\ndef say():\n    return words.WORD\n"
    )
    with serving("dev", "flows.py", folder=tmp_path) as served:
        (tmp_path / "words.py").write_text('WORD = "good evening"\n')
        served.until("code.replaced")
        assert served.client.wait(served.client.start("word").id).output == {"say": "good evening"}


def test_up_serves_files_without_watching_and_refuses_a_broken_one(tmp_path: Path) -> None:
    flows = tmp_path / "flows.py"
    flows.write_text(FLOW.replace("nme", "name"))
    with serving("up", "flows.py", folder=tmp_path) as served:
        assert served.client.wait(served.client.start("greet", {"name": "a"}).id).output == {
            "shout": "HELLO A"
        }
    flows.write_text("1 / 0\n")
    done = subprocess.run(
        [sys.executable, "-m", "weft", "up", "flows.py", "--port", "0"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert f"weft: {flows} cannot be loaded:\nTraceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("file", ["greeting.py", "greeting.py:flow", "greeting.yaml"])
def test_the_command_that_weft_run_prints_for_a_retry_runs_the_function(tmp_path: Path, file: str) -> None:
    body = "def greet(input):\n    return 'hello ' + input['nme']\n"
    flow = "from weft import Workflow\n\nflow = Workflow('greeting')\n\n\n@flow.node(max_retries=0)\n"
    code = tmp_path / "greeting.py"
    if file.endswith(".yaml"):
        code = tmp_path / "steps.py"
        flow = ""
        (tmp_path / file).write_text(
            "name: greeting\nnodes:\n  - {id: greet, handler: python, max_retries: 0, "
            "config: {function: 'steps:greet', args: {input: '{{ input }}'}}}\n"
        )
    code.write_text(flow + body)
    command = [sys.executable, "-m", "weft", "run", file, "--data", "my data", "--input", "name=ann"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    found = re.fullmatch(r"  retry: weft (up .+), then weft retry ([0-9a-f-]{36})", told)
    assert found is not None, done.stderr
    code.write_text(flow + body.replace("nme", "name"))
    with serving(*shlex.split(found[1]), folder=tmp_path) as served:
        served.client.retry(found[2])
        ended = served.client.wait(found[2])
        assert (ended.state, ended.output) == ("COMPLETED", {"greet": "hello ann"}), ended.error


@pytest.mark.parametrize("size", ["one process", "a fleet"])
def test_up_serves_files_on_the_servers_of_production_too(
    tmp_path: Path, size: str, postgres_url: str, redis_url: str
) -> None:
    settings = {"WEFT_DATABASE_URL": postgres_url}
    if size == "a fleet":
        settings["WEFT_REDIS_URL"] = redis_url
    (tmp_path / "flows.py").write_text(FLOW.replace("nme", "name"))
    with serving("up", "flows.py", folder=tmp_path, **settings) as served:
        ended = served.client.wait(served.client.start("greet", {"name": "ann"}).id)
        assert ended.output == {"shout": "HELLO ANN"}, ended.error


def test_up_refuses_files_where_celery_runs_the_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flows.py").write_text(FLOW)
    for name in ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL"):
        monkeypatch.setenv(f"WEFT_{name}", "redis://127.0.0.1:1" if "REDIS" in name else "amqp://127.0.0.1:1")
    monkeypatch.setenv("WEFT_DATABASE_URL", "postgresql://127.0.0.1:1/weft")
    monkeypatch.setenv("WEFT_TRANSPORT", "celery")
    assert main(["up", str(tmp_path / "flows.py")]) == 2
    assert "WEFT_IMPORTS of Celery's workers" in capsys.readouterr().err


def test_files_below_a_folder_are_those_that_declare_a_workflow(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOW)
    (tmp_path / "script.py").write_text("raise SystemExit('never imported')\n")
    for folder in (".hidden", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "flows.py").write_text(FLOW)
    assert SourceTree([tmp_path]).read().files == ((tmp_path / "flows.py").resolve(),)
    with pytest.raises(DocumentError, match="no such file"):
        SourceTree([tmp_path / "other.py"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DocumentError, match=r"declares a weft\.Workflow"):
        SourceTree([tmp_path / "empty"]).read()


def test_two_workflows_of_one_name_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(FLOW)
    (tmp_path / "two.py").write_text(FLOW.replace('"loud"', '"louder"'))
    (problem,) = read_files(SourceTree([tmp_path / "one.py", tmp_path / "two.py"]).read()).problems
    assert problem.file.endswith("two.py")
    assert problem.text.endswith("two.py: two.py:flow and one.py:flow are two workflows of the name 'greet'")


def test_functions_that_the_server_may_not_call_are_named_and_those_of_the_files_are_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "flows.py").write_text(
        "import tempfile\n" + FLOW + "\nplace = flow.node(id='place')(tempfile.gettempdir)\n"
        "flow.node(id='far', handler='python', config={'function': 'far_away:run'})\n"
    )
    with serving("dev", "flows.py", folder=tmp_path) as served:
        (told,) = [event for event in served.first if event["event"] == "function.unknown"]
        assert told["workflow"] == "greet"
        assert told["problem"].startswith(
            "flows.py:flow: /nodes/3/config/function: no living worker may call"
        )
        assert "'far_away:run'" in told["problem"]
        verdict = served.client.validate(served.client.workflow("greet").definition)
        assert [warning.pointer for warning in verdict.warnings] == ["/nodes/3/config/function"]
