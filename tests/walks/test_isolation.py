"""User code in child processes: what it does to its process, it does to its own node and to no other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.walks.stage import Stage, by_id, echo, node, states, workflow

from weft.handlers.usercode import UserCode, beside

if TYPE_CHECKING:
    from weft.core.payload import Json

HERE = Path(__file__).parent
UNTAMED = UserCode(modules=("untamed",), folders=(str(HERE),), allow=("untamed:*",))
# Longer than any test takes: whoever listens is never killed.
PATIENT: dict[str, Any] = {"code": UNTAMED, "worker_processes": 2, "worker_grace_seconds": 20}
STRICT: dict[str, Any] = {**PATIENT, "worker_grace_seconds": 0.1}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Child processes are for an engine that keeps what it does."""
    return tmp_path / "data"


def function(
    node_id: str, name: str, *dependencies: str, args: Json = None, **fields: Json
) -> dict[str, Json]:
    config = {"function": f"untamed:{name}", "args": args or {}}
    return node(node_id, *dependencies, handler="python", config=config, **fields)


class TestAProcessThatDies:
    async def test_a_lost_attempt_is_issued_again_and_after_three_the_node_has_failed(
        self, stage: Stage
    ) -> None:
        good = [function(f"good{i}", "add", args={"a": i, "b": 1}) for i in range(10)]
        async with stage.open(**PATIENT) as engine:
            shown = await stage.run(
                workflow(
                    function("lethal", "die", max_retries=0),
                    echo("behind", "lethal"),
                    *good,
                    failure_policy="continue",
                )
            )

            assert shown["state"] == "FAILED"
            lethal = await engine.describe_node(shown["id"], "lethal")
            assert (lethal["state"], lethal["attempt"]) == ("FAILED", 3)
            assert lethal["error"]["code"] == "deliveries_exhausted"
            assert [(attempt["number"], attempt["outcome"]) for attempt in lethal["attempts"]] == [
                (1, "lost"),
                (2, "lost"),
                (3, "lost"),
            ]
            assert states(shown)["behind"] == "SKIPPED upstream_failed lethal"
            (letter,) = (await stage.letters(shown["id"])).values()
            assert (letter.node_id, letter.attempt, letter.state) == ("lethal", 3, "open")
            assert letter.error["code"] == "deliveries_exhausted"
            types = [event.type for event in await stage.events(shown["id"]) if event.node == "lethal"]
            assert types == ["node.lost", "node.lost", "node.lost", "node.failed"]
        for i in range(10):
            neighbour = by_id(shown)[f"good{i}"]
            assert (neighbour["state"], neighbour["output"]) == ("COMPLETED", i + 1)

    async def test_a_loss_is_no_failure(self, stage: Stage) -> None:
        async with stage.open(**PATIENT) as engine:
            shown = await stage.run(workflow(function("a", "die_at_first", max_retries=0)))
            assert shown["output"] == {"a": 2}
            attempts = (await engine.describe_node(shown["id"], "a"))["attempts"]
        assert [attempt["outcome"] for attempt in attempts] == ["lost", "completed"]

    async def test_only_losses_in_a_row_are_counted(self, stage: Stage) -> None:
        async with stage.open(**PATIENT) as engine:
            shown = await stage.run(workflow(function("a", "die_in_every_other", max_retries=3)))
            failed = await engine.describe_node(shown["id"], "a")
        assert failed["error"]["code"] == "handler_error"
        outcomes = [attempt["outcome"] for attempt in failed["attempts"]]
        assert outcomes == ["lost", "failed"] * 4

    async def test_how_many_losses_are_too_many_is_a_setting(self, stage: Stage) -> None:
        async with stage.open(**PATIENT, max_deliveries=1):
            shown = await stage.run(workflow(function("a", "die")))
        assert by_id(shown)["a"]["attempt"] == 1
        assert by_id(shown)["a"]["error"]["code"] == "deliveries_exhausted"

    async def test_an_at_most_once_attempt_that_was_lost_is_not_repeated(self, stage: Stage) -> None:
        async with stage.open(**PATIENT) as engine:
            shown = await stage.run(workflow(function("a", "die_at_first", delivery="at_most_once")))
            failed = await engine.describe_node(shown["id"], "a")
        assert (failed["state"], failed["error"]["code"], failed["attempt"]) == ("FAILED", "lost", 1)
        assert [attempt["outcome"] for attempt in failed["attempts"]] == ["lost"]

    async def test_coroutines_that_shared_its_process_are_not_charged(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        """Lost with their neighbour, they run again, alone; there only the guilty one is lost again."""
        place = tmp_path / "met"
        place.mkdir()
        names = ["lethal", *(f"n{i}" for i in range(5))]
        met = [
            function(
                name,
                "meet",
                "known",
                args={"folder": str(place), "count": 1 + len(names), "lethal": name == "lethal"},
                max_retries=0,
            )
            for name in names
        ]
        # A first call by itself: from then on it is known that these are coroutines, which may share.
        alone = {"folder": str(place), "count": 0, "lethal": False}
        async with stage.open(**{**PATIENT, "worker_processes": 1}, max_deliveries=1) as engine:
            shown = await stage.run(
                workflow(function("known", "meet", args=alone), *met, failure_policy="continue")
            )
            lost = {
                name: (await engine.describe_node(shown["id"], name))["attempts"][0]["outcome"]
                for name in names
            }
        assert lost == dict.fromkeys(names, "lost"), "they did not share a process"
        assert by_id(shown)["lethal"]["error"]["code"] == "deliveries_exhausted"
        assert [by_id(shown)[name]["output"] for name in names[1:]] == names[1:]


class TestAFunctionThatDoesNotListen:
    async def test_a_coroutine_that_blocks_holds_nobody_else_up(self, stage: Stage, tmp_path: Path) -> None:
        mark = tmp_path / "blocking"
        async with stage.open(**STRICT) as engine:
            execution_id = await stage.submit(workflow(function("a", "block", args={"mark": str(mark)})))
            await stage.until(lambda: _exists(mark))

            other = await stage.run(workflow(echo("a"), function("b", "add", args={"a": 1, "b": 2})))

            assert other["output"] == {"a": {}, "b": 3}
            assert await stage.states(execution_id) == {"a": "RUNNING"}
            await engine.cancel(execution_id)
            await stage.until_idle()

    async def test_a_coroutine_that_blocks_is_killed_when_its_time_is_over(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        args = {"mark": str(tmp_path / "blocking")}
        async with stage.open(**STRICT):
            shown = await stage.run(
                workflow(function("a", "block", args=args, timeout_seconds=0.2, max_retries=1))
            )
        assert (by_id(shown)["a"]["error"]["code"], by_id(shown)["a"]["attempt"]) == ("timeout", 2)

    async def test_one_that_swallows_its_timeout_is_killed_after_the_grace_time(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        mark = tmp_path / "swallowing"
        async with stage.open(**STRICT):
            shown = await stage.run(
                workflow(
                    function("a", "swallow", args={"mark": str(mark)}, timeout_seconds=0.5, max_retries=0)
                )
            )
            assert by_id(shown)["a"]["error"]["code"] == "timeout"
            assert not _lives(int(mark.read_text()))
            await stage.until_idle()
            assert (await stage.run(workflow(function("b", "add", args={"a": 1, "b": 2}))))["output"] == {
                "b": 3
            }

    async def test_one_that_swallows_a_cancel_is_killed_and_its_slot_comes_back(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        mark = tmp_path / "swallowing"
        async with stage.open(**STRICT, worker_concurrency=1) as engine:
            execution_id = await stage.submit(workflow(function("a", "swallow", args={"mark": str(mark)})))

            async def is_written() -> bool:
                return mark.exists() and mark.read_text() != ""

            await stage.until(is_written)
            await engine.cancel(execution_id)
            assert await stage.states(execution_id) == {"a": "CANCELLED cancelled"}

            shown = await stage.run(workflow(function("b", "add", args={"a": 1, "b": 2})))

            assert shown["output"] == {"b": 3}
            assert not _lives(int(mark.read_text()))

    async def test_what_still_runs_when_the_engine_closes_is_killed(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        mark = tmp_path / "swallowing"
        async with stage.open(**STRICT):
            await stage.submit(workflow(function("a", "swallow", args={"mark": str(mark)})))

            async def is_written() -> bool:
                return mark.exists() and mark.read_text() != ""

            await stage.until(is_written)
        assert not _lives(int(mark.read_text()))


class TestWhatAChildRuns:
    async def test_the_functions_of_modules_beside_a_definition(self, stage: Stage, tmp_path: Path) -> None:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "factor.py").write_text("FACTOR = 3\n")
        (folder / "arithmetic.py").write_text(
            "import os\n"
            "from factor import FACTOR\n\n"
            "def scale(n, context):\n"
            "    return [n * FACTOR, context.node_id, os.getpid()]\n"
        )
        allowed = {"function": "arithmetic:scale", "args": {"n": 14}}
        borrowed = {"function": "arithmetic:os"}
        async with stage.open(code=beside(folder / "definition.yaml"), worker_processes=1):
            shown = await stage.run(
                workflow(
                    node("a", handler="python", config=allowed),
                    node("b", handler="python", config=borrowed),
                    node("c", handler="python", config={"function": "os:getcwd"}),
                    failure_policy="continue",
                )
            )
        answer = by_id(shown)["a"]["output"]
        assert answer[:2] == [42, "a"]
        assert answer[2] != os.getpid()
        for name in ("b", "c"):
            assert by_id(shown)[name]["error"]["code"] == "function_not_allowed"

    @pytest.mark.parametrize(
        ("how", "code", "attempts", "type_name"),
        [
            ("for good", "handler_error", 1, "NonRetryable"),
            ("with an error", "handler_error", 2, "LookupError"),
            ("by what it returns", "output_not_json", 1, None),
        ],
    )
    async def test_it_fails_as_it_would_in_this_process(
        self, stage: Stage, how: str, code: str, attempts: int, type_name: str | None
    ) -> None:
        async with stage.open(**PATIENT):
            shown = await stage.run(workflow(function("a", "fail", args={"how": how}, max_retries=1)))
        failed = by_id(shown)["a"]
        assert (failed["error"]["code"], failed["attempt"]) == (code, attempts)
        assert failed["error"].get("details", {}).get("type") == type_name

    async def test_a_secret_reaches_it_and_is_hidden_in_what_it_gives(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WEFT_SECRET_TOKEN", "s3cret")
        file = tmp_path / "kept"
        args = {"token": "{{ secrets.TOKEN }}", "file": str(file)}
        async with stage.open(**PATIENT):
            shown = await stage.run(workflow(function("a", "keep", args=args)))
        assert file.read_text() == "s3cret"
        assert shown["output"] == {"a": "used ***"}


async def _exists(path: Path) -> bool:
    return path.exists()  # noqa: ASYNC240 - a look takes no time


def _lives(pid: int) -> bool:
    """True if there is such a process; one that was not waited for is dead all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
