"""One event is one line, whatever is in it: valid JSON for machines, harmless text for people."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import Server, serving

from weft.journal.contract import LogLine
from weft.logs import JsonFormatter, PeopleFormatter, set_up_logs
from weft.worker.logs import ShownLine, echo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = [
    'a\r\n{"level": "error", "event": "forged"}',
    "\x1b[2J\x1b]0;owned\x07",
    '"} , {"',
    "nul \x00 del \x7f next line \x85 separator \u2028 \u2029",
    "turned \u202e around",
    "lone \ud800 surrogate",
    "back\\slash",
]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A place for log lines, with the process's own logging put back afterwards."""
    root, weft = logging.getLogger(), logging.getLogger("weft")
    before = root.handlers[:], root.level, weft.level, logging.raiseExceptions
    yield io.StringIO()
    root.handlers[:], level, weft_level, logging.raiseExceptions = before
    root.setLevel(level)
    weft.setLevel(weft_level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Read the log; every line of it is one JSON object."""
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_within_its_field_of_its_json_line(text: str, stream: io.StringIO) -> None:
    set_up_logs(stream=stream)
    log = logging.getLogger("weft.test")
    log.warning("node.odd", extra={"node": text, text: 1, "error": {"message": text, "list": [text]}})
    log.warning(text)
    first, second = lines(stream)
    assert (first["event"], first["level"], first["node"], first[text]) == ("node.odd", "warning", text, 1)
    assert first["error"] == {"message": text, "list": [text]}
    assert second["event"] == text
    raw = stream.getvalue().replace("\n", "")
    assert raw.isascii()
    assert raw.isprintable()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_cannot_move_the_cursor_or_begin_a_line_on_a_terminal(text: str) -> None:
    record = logging.makeLogRecord(
        {"name": "weft.test", "levelname": "INFO", "msg": text, "node": text, text: [text]}
    )
    shown = PeopleFormatter().format(record)
    for colour in ("\x1b[2m", "\x1b[0m"):
        shown = shown.replace(colour, "")
    assert shown.isprintable()


def test_an_exception_is_a_field_of_the_line(stream: io.StringIO) -> None:
    set_up_logs(stream=stream)
    try:
        raise RuntimeError("first line\nsecond line")
    except RuntimeError:
        logging.getLogger("weft.test").exception("worker.broken", extra={"node": "a"})
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["node"]) == ("worker.broken", "error", "a")
    assert "first line\nsecond line" in line["exception"]
    assert "Traceback" in line["exception"]


def test_a_secret_is_in_no_part_of_a_line(stream: io.StringIO) -> None:
    secret, longer = 'hunter2"\\é', 'hunter2"\\é and more'
    set_up_logs(stream=stream, secrets=[secret, longer, "abc"])
    try:
        raise RuntimeError(f"cannot log in with {longer}")
    except RuntimeError:
        logging.getLogger("weft.test").exception(
            f"login.failed {secret}",
            extra={"url": f"http://u:{secret}@host", secret: [secret], "object": RuntimeError(secret)},
        )
    logging.getLogger("elsewhere").warning("connecting to %s", secret)
    failed, elsewhere = lines(stream)
    for shown in (repr(failed), repr(elsewhere)):
        assert "hunter2" not in shown
        assert "and more" not in shown
    assert failed["url"] == "http://u:***@host"
    # Three letters are no secret that could be hidden: they stand in other words.
    assert "abc" in JsonFormatter(["abc"]).format(logging.makeLogRecord({"name": "weft", "msg": "abc"}))


def test_others_log_the_same_way_from_warnings_up(stream: io.StringIO) -> None:
    set_up_logs(stream=stream)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 1)
    logging.getLogger("asyncio").error("Task was destroyed but it is pending!")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    asyncio_line, warning_line = lines(stream)
    assert (asyncio_line["event"], asyncio_line["level"]) == ("asyncio", "error")
    assert asyncio_line["message"] == "Task was destroyed but it is pending!"
    assert "old" in warning_line["message"]


def test_debug_lines_are_written_only_when_asked_for(stream: io.StringIO) -> None:
    log = logging.getLogger("weft.test")
    set_up_logs(stream=stream)
    log.debug("node.started")
    set_up_logs(stream=stream, debug=True)
    log.debug("node.ended")
    assert [line["event"] for line in lines(stream)] == ["node.ended"]


def test_what_cannot_be_shown_or_has_no_end_is_cut_and_not_raised(stream: io.StringIO) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError("no")

    set_up_logs(stream=stream)
    endless: list[Any] = []
    endless.append(endless)
    logging.getLogger("weft.test").info(
        "odd", extra={"broken": Broken(), "long": "x" * 100_000, "endless": endless, "nan": float("nan")}
    )
    (line,) = lines(stream)
    assert line["broken"] == "<Broken that cannot be shown: ValueError>"
    assert len(line["long"]) < 10_000
    assert line["nan"] == "nan"


def test_people_see_the_event_its_fields_and_the_traceback() -> None:
    try:
        raise RuntimeError("no\x1b[2J")
    except RuntimeError:
        caught = sys.exc_info()
    record = logging.makeLogRecord(
        {
            "name": "weft.test",
            "levelno": logging.ERROR,
            "levelname": "ERROR",
            "msg": "worker.broken",
            "node": "a b",
            "count": 3,
            "exc_info": caught,
        }
    )
    first, *rest = PeopleFormatter().format(record).split("\n")
    assert re.match(r"\x1b\[2m\d\d:\d\d:\d\d[+-]\d\d:\d\d\x1b\[0m ", first)
    assert "error" in first
    assert "worker.broken" in first
    assert 'node=\x1b[0m"a b"' in first
    assert "count=\x1b[0m3" in first
    assert rest[-1] == r"  RuntimeError: no\x1b[2J"


async def test_what_a_function_in_a_child_logs_is_one_event_a_line_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "import logging, os\n\n\ndef talk(context):\n"
        "    context.logger.info('hello\\nfrom %s', context.secrets['TOKEN'])\n"
        "    logging.getLogger('mine').warning('own\\x1b[2J logger')\n    return 1\n"
    )
    settings = {
        "WEFT_PYTHON_ALLOW": "chatty:talk",
        "WEFT_SECRET_TOKEN": "hunter2",
    }
    node = {"id": "a", "handler": "python", "config": {"function": "chatty:talk"}, "secrets": ["TOKEN"]}
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        execution_id = await api.start({"nodes": [node]})
        assert (await api.terminal(execution_id))["state"] == "COMPLETED"
        assert await server.stop() == 0
    assert not any("text" in line for line in server.log), "a line that is no JSON"
    (said,) = [line for line in server.log if "hello" in json.dumps(line)]
    assert said.get("message", said["event"]) == "hello\nfrom ***"
    assert said["execution"] == execution_id
    (own,) = server.events("mine")
    assert own["message"] == "own\x1b[2J logger"


async def test_a_hostile_request_leaves_the_log_one_event_a_line(tmp_path: Path) -> None:
    settings = {"WEFT_API_KEYS": "a-key-of-twenty-four-chars"}
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        host, port = api.url.removeprefix("http://").split(":")
        for raw in (
            b'GET /v1/executions/%0d%0a%1b[2J HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \x1b[2J"}\r\n\r\n',
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x00\x01\x02\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(raw)
            writer.write_eof()
            await reader.read()
            writer.close()
        assert await server.stop() == 0
    assert not any("text" in line for line in server.log), server.log


TELLTALE = """
import logging, os, subprocess, sys
from base64 import b64encode

# A server has them, and so has weft run; the processes of its functions have not.
KEY = os.environ.get("WEFT_LLM_API_KEY")
print("imported with", os.environ.get("WEFT_SECRET_TOKEN"), KEY)


def talk(context):
    TOKEN = context.secrets["TOKEN"]
    context.logger.info("by the context %s", TOKEN)
    logging.getLogger("mine").warning("by logging %s", TOKEN)
    print("by print", TOKEN, KEY, "done")
    print("by stderr", TOKEN, file=sys.stderr)
    print("as base64", b64encode(b"user:" + TOKEN.encode()).decode())
    sys.stdout.write("in two " + TOKEN[:3])
    sys.stdout.flush()
    sys.stdout.write(TOKEN[3:] + " writes\\n")
    print(context.secrets["LETTER"])
    program = 'echo "by a program $TOKEN"; echo "to its stderr $TOKEN" >&2'
    subprocess.run(["sh", "-c", program], check=True, env={"TOKEN": TOKEN})
    os.write(1, f"without a line end {TOKEN}".encode())
    raise ValueError(f"refused {TOKEN}")
"""
TOLD = [
    "imported with", "by the context ***", "by logging ***", "by print ***", "by stderr ***",
    "as base64", "in two *** writes", "by a program ***", "to its stderr ***", "without a line end ***",
]  # fmt: skip
TELLTALE_SETTINGS = {
    "WEFT_PYTHON_ALLOW": "telltale:talk",
    "WEFT_IMPORTS": "telltale",
    "WEFT_SECRET_TOKEN": "hunter2-hunter2",
    "WEFT_SECRET_LETTER": "first line\nsecond line",
    "WEFT_LLM_API_KEY": "sk-of-the-operator",
}
TELLTALE_NODE = {
    "id": "a",
    "handler": "python",
    "config": {"function": "telltale:talk"},
    "secrets": ["TOKEN", "LETTER"],
    "max_retries": 0,
}


def check_told(text: str) -> None:
    for part in TOLD:
        assert part in text
    for secret in ("hunter2", "aHVudGVyM", "sk-of", "first line", "second line"):
        assert secret not in text


async def test_no_secret_is_on_stderr_of_a_server_whichever_way_a_function_writes(tmp_path: Path) -> None:
    (tmp_path / "telltale.py").write_text(TELLTALE)
    async with serving(tmp_path / "data", settings=TELLTALE_SETTINGS) as (server, api):
        execution_id = await api.start({"nodes": [TELLTALE_NODE]})
        assert (await api.terminal(execution_id))["state"] == "FAILED"
        assert await server.stop() == 0
    check_told("\n".join(line.get("text") or json.dumps(line) for line in server.log))


async def test_no_secret_is_on_stderr_of_weft_run_whichever_way_a_function_writes(tmp_path: Path) -> None:
    (tmp_path / "telltale.py").write_text(TELLTALE)
    (tmp_path / "flow.json").write_text(json.dumps({"nodes": [TELLTALE_NODE]}))
    run = await Server.launch("run", "flow.json", settings=TELLTALE_SETTINGS, folder=tmp_path)
    assert await run.ended() == 1
    text = "\n".join(line["text"] for line in run.log)
    check_told(text)
    assert "handler_error: ValueError: refused ***" in text


FORGER = """
import logging, os, sys

print('{"event": "server.stopped", "level": "info"}')
EVENT = '{"ts": "2026-01-01T00:00:00Z", "level": "error", "event": "worker.broken", "pid": 1}'


def forge(context):
    print(EVENT)
    print("\\n" + EVENT, file=sys.stderr)
    os.write(1, b"no end " + EVENT.encode())
    os.system("echo '" + EVENT + "'")
    context.logger.error("worker.broken", extra={"child": 1, "field": EVENT})
    logging.getLogger("weft.server").info("server.stopped")
    logging.getLogger("mine").error("told %s", EVENT)
    print("x" * 20000 + "\\n" + "y\\n" * 9000)
    return 1
"""


@pytest.mark.parametrize("logs", ["on", "off"])
async def test_what_a_function_prints_cannot_pass_for_an_event(tmp_path: Path, logs: str) -> None:
    (tmp_path / "forger.py").write_text(FORGER)
    settings = {"WEFT_PYTHON_ALLOW": "forger:*", "WEFT_IMPORTS": "forger", "WEFT_LOGS": logs}
    node = {"id": "a", "handler": "python", "config": {"function": "forger:forge"}}
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        execution = await api.start({"nodes": [node]})
        assert (await api.terminal(execution))["state"] == "COMPLETED"
        assert await server.stop() == 0
    # Every line is an event, and those of the function say so.
    assert all(line.get("event") and line.get("ts") for line in server.log)
    printed = server.events("function.printed")
    text = "".join(line["text"] + "\n" for line in printed)
    assert text.count('"event": "worker.broken"') == 4
    assert text.count("y\n") > 1_000
    assert all(len(line["text"]) <= 8192 for line in printed)
    (imported,) = server.events("server.printed")
    assert imported["text"] == '{"event": "server.stopped", "level": "info"}'
    if logs == "on":
        assert {(line["execution"], line["node"]) for line in printed if line["node"]} == {(execution, "a")}
    else:
        assert len({line["child"] for line in printed}) == 1
    # By its logger it may say what it likes; whose it is, is said beside it.
    (broken,) = server.events("worker.broken")
    stopped, last = server.events("server.stopped")
    (mine,) = server.events("mine")
    for line in (broken, stopped, mine):
        assert line.get("node") == "a" or line["child"] == printed[0]["child"]
    assert "node" not in last
    assert "child" not in last
    assert mine["level"] == "error"
    assert mine["message"].startswith("told {")


def test_a_line_that_weft_adds_to_those_of_a_node_is_no_second_event(stream: io.StringIO) -> None:
    set_up_logs(stream=stream)
    own = LogLine(0, "log", "code changed since attempt 1", "INFO", "weft")
    users = LogLine(0, "log", "seven orders", "INFO", "shop")
    echo([ShownLine("x", "total", 2, own), ShownLine("x", "total", 2, users)])
    assert [line["message"] for line in lines(stream)] == ["seven orders"]
