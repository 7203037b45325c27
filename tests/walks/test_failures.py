"""What a failure does to the rest: both policies, every kind of handling, skips, causes and dead letters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.walks.stage import PATIENCE_SECONDS, Stage, by_id, echo, fails, node, states, workflow

from weft.errors import NonRetryable
from weft.journal.contract import LetterQuery
from weft.views.describe import describe_dead_letter

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.engine import Engine

POLICIES = ("fail_fast", "continue")
OFF = "1 == 2"


class TestTheVerdict:
    """The verdict is the same under both policies; what else runs on the way is not."""

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_a_handled_failure_leaves_a_completed_execution(
        self, engine: Engine, stage: Stage, policy: str
    ) -> None:
        shown = await stage.run(
            workflow(
                fails("bad"),
                echo("behind", "bad"),
                echo("handler", "bad", rule="one_failed", config={"said": "{{ nodes.bad.error.message }}"}),
                echo("other"),
                echo("after", "other"),
                failure_policy=policy,
            )
        )
        assert (shown["state"], shown["error"]) == ("COMPLETED", None)
        assert states(shown) == {
            "bad": "FAILED",
            "behind": "SKIPPED upstream_failed bad",
            "handler": "COMPLETED",
            "other": "COMPLETED",
            "after": "COMPLETED",
        }
        assert shown["output"] == {"handler": {"said": "it always fails"}, "after": {}}
        assert (await stage.letters(shown["id"]))["bad"].state == "handled"

    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize(
        ("handler", "state"),
        [
            (fails("handler", "bad", rule="one_failed"), "FAILED"),
            (echo("handler", "bad", rule="one_failed", condition=OFF), "SKIPPED condition"),
            (echo("handler", "bad", rule="one_failed", condition="input.missing"), "FAILED"),
        ],
        ids=["failed", "skipped", "broken"],
    )
    async def test_a_failure_whose_handler_did_not_complete_leaves_a_failed_execution(
        self, engine: Engine, stage: Stage, policy: str, handler: dict[str, Json], state: str
    ) -> None:
        shown = await stage.run(workflow(fails("bad"), handler, failure_policy=policy))
        assert shown["state"] == "FAILED"
        assert shown["output"] is None
        assert (shown["error"]["code"], shown["error"]["node"]) == ("node_failed", "bad")
        assert states(shown) == {"bad": "FAILED", "handler": state}
        assert {letter.state for letter in (await stage.letters(shown["id"])).values()} == {"open"}

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_a_failure_without_a_handler_leaves_a_failed_execution(
        self, engine: Engine, stage: Stage, policy: str
    ) -> None:
        shown = await stage.run(workflow(fails("bad"), failure_policy=policy))
        assert shown["state"] == "FAILED"
        assert shown["error"] == {
            "code": "node_failed",
            "message": "node bad failed: it always fails",
            "retryable": False,
            "node": "bad",
            "details": {"code": "handler_error"},
        }

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_a_handler_of_one_failure_does_not_handle_another(
        self, engine: Engine, stage: Stage, policy: str
    ) -> None:
        shown = await stage.run(
            workflow(
                fails("handled"),
                echo("handler", "handled", rule="one_failed"),
                fails("fatal", "handler"),
                failure_policy=policy,
            )
        )
        assert (shown["state"], shown["error"]["node"]) == ("FAILED", "fatal")
        letters = await stage.letters(shown["id"])
        assert {name: letter.state for name, letter in letters.items()} == {
            "handled": "handled",
            "fatal": "open",
        }

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_a_handler_behind_a_dependent_does_not_handle_the_failure(
        self, engine: Engine, stage: Stage, policy: str
    ) -> None:
        """Only a direct dependent does: `far` has a parent that was skipped, none that failed itself."""
        shown = await stage.run(
            workflow(
                fails("bad"),
                echo("behind", "bad"),
                echo("far", "behind", rule="one_failed"),
                failure_policy=policy,
            )
        )
        assert (shown["state"], shown["error"]["node"]) == ("FAILED", "bad")
        assert states(shown)["behind"] == "SKIPPED upstream_failed bad"

    async def test_clean_up_does_not_turn_a_failed_execution_green(
        self, engine: Engine, stage: Stage
    ) -> None:
        shown = await stage.run(
            workflow(
                fails("bad"),
                echo("behind", "bad"),
                echo("cleanup", "behind", "bad", rule="all_done"),
                failure_policy="continue",
            )
        )
        assert states(shown)["cleanup"] == "COMPLETED"
        assert (shown["state"], shown["error"]["node"]) == ("FAILED", "bad")

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_skipped_nodes_fail_nothing(self, engine: Engine, stage: Stage, policy: str) -> None:
        shown = await stage.run(
            workflow(
                echo("off", condition=OFF),
                echo("behind", "off"),
                echo("strict", "off", rule="all_success"),
                echo("lenient", "off", rule="none_failed"),
                echo("unneeded", "lenient", rule="one_failed"),
                failure_policy=policy,
            )
        )
        assert shown["state"] == "COMPLETED"
        assert states(shown) == {
            "off": "SKIPPED condition",
            "behind": "SKIPPED upstream_skipped off",
            "strict": "SKIPPED upstream_skipped off",
            "lenient": "COMPLETED",
            "unneeded": "SKIPPED not_triggered",
        }
        for name in ("off", "behind", "strict", "unneeded"):
            times = [by_id(shown)[name][key] for key in ("queued_at", "started_at", "finished_at")]
            assert times == [None, None, None]
        assert await stage.letters(shown["id"]) == {}

    async def test_the_error_names_the_first_failure_that_was_not_handled(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(
                node("z"),
                node("y"),
                node("a"),
                echo("handler", "z", rule="one_failed"),
                failure_policy="continue",
            )
        )
        for name in ("z", "y", "a"):
            (await stage.call(name)).fail()
            await stage.until_state(execution_id, name, "FAILED")
        assert (await stage.ended(execution_id))["error"]["node"] == "y"


class TestFailFast:
    async def test_everything_ends_in_one_step(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=3):
            execution_id = await stage.submit(
                workflow(
                    node("bad"),
                    echo("behind", "bad"),
                    echo("far", "behind"),
                    echo("cleanup", "bad", rule="all_done"),
                    node("running"),
                    node("running_too"),
                    node("queued"),
                    echo("waiting", "running"),
                )
            )
            bad, running, _ = await stage.calls_of(["bad", "running", "running_too"])
            await stage.until_state(execution_id, "queued", "QUEUED")

            bad.fail()

            shown = await stage.ended(execution_id)
            assert shown["state"] == "FAILED"
            assert states(shown) == {
                "bad": "FAILED",
                "behind": "SKIPPED upstream_failed bad",
                "far": "SKIPPED upstream_failed bad",
                "cleanup": "CANCELLED fail_fast bad",
                "running": "CANCELLED fail_fast bad",
                "running_too": "CANCELLED fail_fast bad",
                "queued": "CANCELLED fail_fast bad",
                "waiting": "CANCELLED fail_fast bad",
            }
            # One commit: all events carry its moment, and nothing stands between them.
            events = await stage.events(execution_id)
            types = [event.type for event in events]
            last = events[types.index("node.failed") :]
            assert len(last) == 9
            assert last[-1].type == "execution.failed"
            assert len({event.at for event in last}) == 1

            # Those that ran are asked to stop, and their late results change nothing.
            async with asyncio.timeout(PATIENCE_SECONDS):
                await running.heard_stop.wait()
            before = await stage.engine.describe(execution_id)
            await stage.publish_late(running)
            assert await stage.engine.describe(execution_id) == before
            assert (await stage.event_types(execution_id))[-1] == "result.discarded"

    async def test_while_a_handler_can_still_run_the_failure_ends_nothing(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(fails("bad"), node("handler", "bad", rule="one_failed"), node("other"))
        )
        handler, other = await stage.calls_of(["handler", "other"])
        assert await stage.states(execution_id) == {
            "bad": "FAILED",
            "handler": "RUNNING",
            "other": "RUNNING",
        }

        handler.fail()

        shown = await stage.ended(execution_id)
        assert (shown["state"], shown["error"]["node"]) == ("FAILED", "bad")
        assert states(shown)["other"] == "CANCELLED fail_fast bad"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await other.heard_stop.wait()

    async def test_a_retry_to_come_is_no_failure_yet(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=1), node("other")))
        (await stage.call("a")).fail(RuntimeError("once"))
        (await stage.call("a")).complete()
        (await stage.call("other")).complete()
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert await stage.letters(execution_id) == {}


class TestContinue:
    async def test_independent_branches_run_to_their_end(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(
            workflow(
                fails("bad"),
                echo("behind", "bad"),
                node("other"),
                node("after", "other"),
                node("cleanup", "behind", "after", rule="all_done"),
                failure_policy="continue",
            )
        )
        other = await stage.call("other")
        await stage.until_state(execution_id, "behind", "SKIPPED")
        assert (await stage.execution(execution_id)).state == "RUNNING"

        other.complete()
        (await stage.call("after")).complete()
        (await stage.call("cleanup")).complete()

        shown = await stage.ended(execution_id)
        assert shown["state"] == "FAILED"
        assert states(shown) == {
            "bad": "FAILED",
            "behind": "SKIPPED upstream_failed bad",
            "other": "COMPLETED",
            "after": "COMPLETED",
            "cleanup": "COMPLETED",
        }


class TestTheRules:
    async def test_one_failed_runs_at_the_first_failure_and_does_not_wait(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(node("slow"), node("bad"), node("handler", "slow", "bad", rule="one_failed"))
        )
        slow, bad = await stage.calls_of(["slow", "bad"])
        bad.fail()

        (await stage.call("handler")).complete("handled")
        await stage.until_state(execution_id, "handler", "COMPLETED")
        assert (await stage.states(execution_id))["slow"] == "RUNNING"
        slow.complete()

        assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_failure_after_its_handler_completed_is_handled_too(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(node("slow"), node("bad"), node("handler", "slow", "bad", rule="one_failed"))
        )
        slow, bad = await stage.calls_of(["slow", "bad"])
        bad.fail()
        (await stage.call("handler")).complete()
        await stage.until_state(execution_id, "handler", "COMPLETED")
        slow.fail()

        assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        letters = await stage.letters(execution_id)
        assert {letter.state for letter in letters.values()} == {"handled"}

    async def test_one_success_runs_at_the_first_completed_parent(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(
            workflow(
                node("slow"),
                node("quick"),
                node(
                    "first",
                    "slow",
                    "quick",
                    rule="one_success",
                    config={"slow": "{{ slow.output | default('none') }}", "quick": "{{ quick.output }}"},
                ),
            )
        )
        slow, quick = await stage.calls_of(["slow", "quick"])
        quick.complete(1)
        first = await stage.call("first")
        assert first.config == {"slow": "none", "quick": 1}
        first.complete()
        slow.complete()
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_skip_goes_on_through_the_graph_and_names_the_failed_node(
        self, engine: Engine, stage: Stage
    ) -> None:
        shown = await stage.run(
            workflow(
                fails("bad"),
                echo("good"),
                echo("one", "bad", "good"),
                echo("two", "one"),
                echo("any", "two", "bad", rule="one_success"),
                echo("cleanup", "any", rule="all_done"),
                failure_policy="continue",
            )
        )
        assert states(shown) == {
            "bad": "FAILED",
            "good": "COMPLETED",
            "one": "SKIPPED upstream_failed bad",
            "two": "SKIPPED upstream_failed bad",
            "any": "SKIPPED upstream_failed bad",
            "cleanup": "COMPLETED",
        }


class TestDeadLetters:
    async def test_a_letter_says_all_there_is_to_say(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(
            workflow(
                echo("source", config={"n": 7}),
                node("bad", "source", queue="slow", config={"given": "{{ source.n }}"}, max_retries=1),
            )
        )
        (await stage.call("bad")).fail(RuntimeError("once"))
        (await stage.call("bad")).fail(NonRetryable("for good"))
        await stage.ended(execution_id)

        (letter,) = (await stage.letters(execution_id)).values()
        shown = await describe_dead_letter(letter, engine.ports)

        assert list(shown) == [
            *("id", "execution", "workflow", "node", "generation", "attempt", "handler", "queue"),
            *("config", "error", "attempts", "state", "created_at"),
        ]
        assert shown["execution"] == execution_id
        assert (shown["workflow"], shown["node"], shown["handler"]) == ("walk", "bad", "held")
        assert (shown["generation"], shown["attempt"], shown["queue"]) == (1, 2, "slow")
        assert shown["config"] == {"given": 7}
        assert shown["error"]["message"] == "for good"
        assert [attempt["error"]["message"] for attempt in shown["attempts"]] == [
            "RuntimeError: once",
            "for good",
        ]
        assert shown["state"] == "open"

    async def test_there_is_one_per_failed_node_and_generation(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(fails("a"), fails("b"), failure_policy="continue"))
        await stage.ended(execution_id)
        await engine.retry(execution_id)
        await stage.ended(execution_id)

        letters = await engine.ports.catalog.dead_letters(LetterQuery(execution_id=execution_id))

        assert sorted((letter.node_id, letter.generation, letter.state) for letter in letters) == [
            ("a", 1, "retried"),
            ("a", 2, "open"),
            ("b", 1, "retried"),
            ("b", 2, "open"),
        ]

    async def test_an_old_letter_does_not_show_a_config_it_never_had(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(node("source"), node("bad", "source", config={"given": "{{ source.n }}"}))
        )
        (await stage.call("source")).complete({"n": 1})
        (await stage.call("bad")).fail()
        await stage.ended(execution_id)
        (old,) = (await stage.letters(execution_id)).values()
        await engine.retry(execution_id, nodes=["source"])
        (await stage.call("source")).complete({"n": 2})
        (await stage.call("bad")).fail()
        await stage.ended(execution_id)
        (new,) = (await stage.letters(execution_id)).values()

        async def shown(letter: Any) -> dict[str, Any]:
            return await describe_dead_letter(letter, engine.ports)

        assert (await shown(old))["config"] is None
        assert [attempt["number"] for attempt in (await shown(old))["attempts"]] == [1]
        assert (await shown(new))["config"] == {"given": 2}
        assert [attempt["number"] for attempt in (await shown(new))["attempts"]] == [2]
