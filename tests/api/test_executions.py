"""Executions over REST: started, listed, looked into."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.api.play import EXECUTION, LISTED, NODE, Play, check_problem, node_counts
from tests.walks.stage import echo, fails, node, workflow

from weft.core.payload import MAX_VALUES
from weft.core.state import ExecutionState

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Serve
    from tests.walks.stage import Stage

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
}


class TestStartingAStoredWorkflow:
    async def test_it_is_accepted_as_an_execution_without_nodes_that_is_found_where_it_says(
        self, play: Play
    ) -> None:
        stored = await play.store(echo("a", config={"n": "{{ input.n }}"}), echo("b", "a"))
        body = {"input": {"n": 7}, "labels": {"team": "blue"}, "priority": "high"}
        answer = await play.post("/v1/workflows/flow/executions", json=body)

        assert answer.status == 202
        shown = answer.json
        assert shown.keys() == EXECUTION
        assert UUID(shown["id"]).version == 7
        assert answer.headers["Location"] == f"/v1/executions/{shown['id']}"
        assert (shown["workflow"], shown["version"], shown["digest"]) == ("flow", 1, stored["digest"])
        assert (shown["state"], shown["generation"], shown["live"]) == ("RUNNING", 1, True)
        assert (shown["input"], shown["labels"], shown["priority"]) == ({"n": 7}, {"team": "blue"}, "high")
        assert (shown["output"], shown["error"], shown["batch"]) == (None, None, None)
        assert sum(shown["counts"].values()) == 2
        ended = await play.ended(shown["id"])
        assert (ended["state"], ended["output"]) == ("COMPLETED", {"b": {}})
        assert ended["nodes"][0]["output"] == {"n": 7}

    async def test_all_of_the_body_may_be_left_out(self, play: Play) -> None:
        await play.store(echo("a"))
        bodies: list[dict[str, Any]] = [{}, {"json": {}}]
        for kwargs in bodies:
            answer = await play.post("/v1/workflows/flow/executions", **kwargs)
            assert answer.status == 202
            assert (answer.json["input"], answer.json["labels"]) == ({}, {})
            assert answer.json["priority"] == "normal"

    async def test_the_body_may_be_yaml(self, play: Play) -> None:
        await play.store(echo("a"))
        headers = {"Content-Type": "application/yaml"}
        answer = await play.post("/v1/workflows/flow/executions", data="input: {on: no}", headers=headers)
        assert answer.json["input"] == {"on": "no"}

    async def test_a_version_is_named_by_its_number_or_alias_and_is_the_latest_otherwise(
        self, play: Play
    ) -> None:
        first = await play.store(echo("a", config=1))
        second = await play.store(echo("a", config=2))
        put = await play.call("PUT", "/v1/workflows/flow/aliases/live", json={"version": 1})
        assert put.status == 200
        for wanted, version in (({}, 2), ({"version": 1}, 1), ({"version": "live"}, 1)):
            answer = await play.post("/v1/workflows/flow/executions", json=wanted)
            assert answer.json["version"] == version
            assert answer.json["digest"] == (first, second)[version - 1]["digest"]

    @pytest.mark.parametrize("version", [3, 0, -1, 10**30, "nobody", "1", "", "\0"])
    async def test_a_version_that_does_not_exist_is_not_found(self, play: Play, version: object) -> None:
        await play.store(echo("a"))
        answer = await play.post("/v1/workflows/flow/executions", json={"version": version})
        check_problem(answer, 404, "not_found")

    async def test_a_workflow_that_does_not_exist_or_was_deleted_is_not_found(self, play: Play) -> None:
        check_problem(await play.post("/v1/workflows/flow/executions", json={}), 404, "not_found")
        await play.store(echo("a"))
        execution_id = await play.start()
        assert (await play.call("DELETE", "/v1/workflows/flow")).status == 204
        for body in ({}, {"version": 1}):
            check_problem(await play.post("/v1/workflows/flow/executions", json=body), 404, "not_found")
        assert (await play.ended(execution_id))["state"] == "COMPLETED", "what was started goes on"

    async def test_an_input_that_does_not_fit_is_refused_with_every_problem(self, play: Play) -> None:
        await play.store(echo("a"), input_schema=ORDER)
        answer = await play.post("/v1/workflows/flow/executions", json={"input": {"id": "7", "note": 1}})
        check_problem(answer, 422, "invalid_input", "/input/id", "/input/note")
        answer = await play.post("/v1/workflows/flow/executions", json={})
        check_problem(answer, 422, "invalid_input", "/input")
        assert (await play.get("/v1/executions")).json["items"] == []

    @pytest.mark.parametrize("given", [None, [], 1, "x", True])
    async def test_an_input_is_an_object(self, play: Play, given: object) -> None:
        await play.store(echo("a"))
        answer = await play.post("/v1/workflows/flow/executions", json={"input": given})
        check_problem(answer, 422, "invalid_input", "/input")

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"priority": "urgent"}, "/priority"),
            ({"labels": {"team": 1}}, "/labels/team"),
            ({"labels": {"team": "x" * 256}}, "/labels/team"),
            ({"labels": {f"l{n}": "" for n in range(33)}}, "/labels"),
            ({"labels": []}, "/labels"),
            ({"inputs": {}}, "/inputs"),
            ([], ""),
        ],
    )
    async def test_a_bad_field_is_refused_with_a_pointer_to_it(
        self, play: Play, body: object, pointer: str
    ) -> None:
        await play.store(echo("a"))
        answer = await play.post("/v1/workflows/flow/executions", json=body)
        check_problem(answer, 422, "invalid_request", pointer)

    @pytest.mark.parametrize("key", ["Team", "", "-a", "a b", "a" * 64, "é", "a\n"])
    async def test_a_bad_key_of_a_label_is_refused(self, play: Play, key: str) -> None:
        await play.store(echo("a"))
        answer = await play.post("/v1/workflows/flow/executions", json={"labels": {key: "x"}})
        check_problem(answer, 422, "invalid_request")
        assert answer.json["problems"][0]["pointer"].startswith("/labels/")

    async def test_labels_up_to_the_limits_are_kept(self, play: Play) -> None:
        await play.store(echo("a"))
        labels = {f"{n:02}" + "a._/-"[: n % 5 + 1]: "é" * 255 for n in range(31)} | {"a" * 63: ""}
        execution_id = await play.start(labels=labels)
        assert (await play.show(execution_id))["labels"] == labels

    async def test_an_input_over_the_limit_is_refused(self, serve: Serve, stage: Stage) -> None:
        async with serve(data=None, max_payload_bytes=1024) as server:
            play = Play(server, stage)
            await play.store(echo("a"))
            exact = {"x": "y" * (1024 - len('{"x":""}'))}
            assert (await play.post("/v1/workflows/flow/executions", json={"input": exact})).status == 202
            more = {"x": exact["x"] + "y"}
            answer = await play.post("/v1/workflows/flow/executions", json={"input": more})
            check_problem(answer, 422, "invalid_input", "/input")

    async def test_an_input_of_too_many_values_is_refused(self, play: Play) -> None:
        await play.store(echo("a"))
        for body, where in (
            ({"input": {"x": [0] * MAX_VALUES}}, "/input"),
            ({"workflow": "flow", "inputs": [{}, {"x": [0] * MAX_VALUES}]}, "/inputs/1"),
        ):
            path = "/v1/workflows/flow/executions" if "input" in body else "/v1/batches"
            text = io.BytesIO(json.dumps(body).encode())
            answer = await play.post(path, data=text, headers={"Content-Type": "application/json"})
            check_problem(answer, 422, "invalid_input", where)
            assert answer.json["problems"][0]["message"] == "more than 1,000,000 values"

    async def test_a_large_input_comes_back_as_it_was(self, play: Play) -> None:
        await play.store(echo("a"))
        large = {"rows": [{"id": n, "text": "é" * 20, "value": n / 3} for n in range(5000)]}
        execution_id = await play.start(input=large)
        assert (await play.ended(execution_id))["input"] == large


class TestStartingADefinition:
    async def test_it_has_no_version_and_needs_no_name(self, play: Play) -> None:
        definition = {"nodes": [echo("a", config="{{ input.n }}")], "output": "{{ a.output }}"}
        answer = await play.post("/v1/executions", json={"definition": definition, "input": {"n": [1]}})
        assert answer.status == 202
        assert answer.json.keys() == EXECUTION
        assert (answer.json["workflow"], answer.json["version"]) == (None, None)
        assert answer.headers["Location"] == f"/v1/executions/{answer.json['id']}"
        assert (await play.ended(answer.json["id"]))["output"] == [1]

    async def test_its_name_is_the_workflow_of_the_execution_and_stores_nothing(self, play: Play) -> None:
        answer = await play.post("/v1/executions", json={"definition": workflow(echo("a"))})
        assert (answer.json["workflow"], answer.json["version"]) == ("walk", None)
        assert (await play.get("/v1/workflows")).json["items"] == []

    async def test_its_problems_are_all_listed_and_nothing_is_stored(self, play: Play) -> None:
        definition = {"nodes": [echo("a", "b"), node("c", handler="nobody")]}
        answer = await play.post("/v1/executions", json={"definition": definition})
        check_problem(
            answer,
            422,
            "invalid_definition",
            "/definition/nodes/0/dependencies/0",
            "/definition/nodes/1/handler",
        )
        assert (await play.get("/v1/executions")).json["items"] == []

    async def test_its_input_is_checked(self, play: Play) -> None:
        definition = workflow(echo("a"), input_schema=ORDER)
        answer = await play.post("/v1/executions", json={"definition": definition, "input": {}})
        check_problem(answer, 422, "invalid_input", "/input")

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [({}, ""), ({"definition": {"nodes": [echo("a")]}, "version": 1}, "/version")],
    )
    async def test_fields_that_are_missing_or_unknown_are_named(
        self, play: Play, body: object, pointer: str
    ) -> None:
        check_problem(await play.post("/v1/executions", json=body), 422, "invalid_request", pointer)

    async def test_a_definition_that_is_no_object_is_refused(self, play: Play) -> None:
        answer = await play.post("/v1/executions", json={"definition": None})
        check_problem(answer, 422, "invalid_definition", "/definition")


class TestWaiting:
    async def test_a_start_that_waits_answers_with_the_whole_execution_once_it_is_terminal(
        self, play: Play
    ) -> None:
        await play.store(node("a"))
        path = "/v1/workflows/flow/executions?wait=30"
        started = asyncio.create_task(play.post(path, json={}))
        (await play.stage.call("a")).complete({"n": 1})
        answer = await started
        assert answer.status == 200
        assert answer.json.keys() == EXECUTION | {"nodes"}
        assert (answer.json["state"], answer.json["output"]) == ("COMPLETED", {"a": {"n": 1}})
        assert answer.headers["Location"] == f"/v1/executions/{answer.json['id']}"

    @pytest.mark.parametrize("wait", ["0", "0.01", "1e-05"])
    async def test_a_start_that_waited_long_enough_answers_without_nodes(self, play: Play, wait: str) -> None:
        await play.store(node("a"))
        answer = await play.post(f"/v1/workflows/flow/executions?wait={wait}", json={})
        assert answer.status == 202
        assert answer.json.keys() == EXECUTION
        assert answer.json["state"] in ("PENDING", "RUNNING")

    async def test_a_definition_that_is_started_may_be_waited_for(self, play: Play) -> None:
        answer = await play.post("/v1/executions?wait=30", json={"definition": {"nodes": [fails("a")]}})
        assert (answer.status, answer.json["state"]) == (200, "FAILED")
        assert answer.json["error"]["node"] == "a"

    async def test_a_look_that_waits_answers_200_either_way(self, play: Play) -> None:
        await play.store(node("a"))
        execution_id = await play.start()
        assert (await play.show(execution_id, "?wait=0.01"))["state"] in ("PENDING", "RUNNING")
        looking = asyncio.create_task(play.show(execution_id, "?wait=30&nodes=none"))
        (await play.stage.call("a")).complete()
        shown = await looking
        assert (shown["state"], "nodes" in shown) == ("COMPLETED", False)
        assert (await play.show(execution_id, "?wait=300"))["state"] == "COMPLETED"

    @pytest.mark.parametrize("wait", ["-1", "300.5", "1e999", "nan", "inf", "1_0", "x", ""])
    async def test_a_wait_outside_its_limits_is_refused_and_starts_nothing(
        self, play: Play, wait: str
    ) -> None:
        await play.store(echo("a"))
        answer = await play.post(f"/v1/workflows/flow/executions?wait={wait}", json={})
        check_problem(answer, 422, "invalid_request", "/wait")
        answer = await play.post(f"/v1/executions?wait={wait}", json={"definition": workflow(echo("a"))})
        check_problem(answer, 422, "invalid_request", "/wait")
        assert (await play.get("/v1/executions")).json["items"] == []
        check_problem(await play.get(f"/v1/executions/x?wait={wait}"), 422, "invalid_request", "/wait")

    async def test_nobody_waits_for_what_does_not_exist(self, play: Play) -> None:
        check_problem(await play.get("/v1/executions/nobody?wait=300"), 404, "not_found")


class TestLooking:
    async def test_an_execution_shows_its_nodes_in_the_order_of_the_definition(self, play: Play) -> None:
        await play.store(echo("z"), fails("b"), echo("a", "b"), failure_policy="continue")
        shown = await play.ended(await play.start())
        assert shown.keys() == EXECUTION | {"nodes"}
        assert [each["id"] for each in shown["nodes"]] == ["z", "b", "a"]
        assert all(each.keys() == NODE for each in shown["nodes"])
        assert shown["counts"] == node_counts(COMPLETED=1, FAILED=1, SKIPPED=1)
        assert (shown["error"]["code"], shown["error"]["node"]) == ("node_failed", "b")

    async def test_nodes_are_left_out_or_shown_in_brief_on_request(self, play: Play) -> None:
        await play.store(echo("a"), fails("b"))
        execution_id = await play.start()
        whole = await play.ended(execution_id)
        none = await play.show(execution_id, "?nodes=none")
        assert none == {key: value for key, value in whole.items() if key != "nodes"}
        brief = await play.show(execution_id, "?nodes=brief")
        assert brief == {
            **none,
            "nodes": [
                {key: value for key, value in each.items() if key not in ("output", "error")}
                for each in whole["nodes"]
            ],
        }
        answer = await play.get(f"/v1/executions/{execution_id}?nodes=some")
        check_problem(answer, 422, "invalid_request", "/nodes")

    async def test_a_look_without_nodes_asks_for_none(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await play.store(echo("a"))
        execution_id = await play.start()
        await play.ended(execution_id)
        monkeypatch.setattr(type(play.server.engine.ports.journal), "nodes", None)
        assert (await play.show(execution_id, "?nodes=none"))["counts"]["COMPLETED"] == 1
        assert (await play.get("/v1/executions")).json["items"][0]["counts"]["COMPLETED"] == 1

    @pytest.mark.parametrize("path", ["", "/nodes", "/nodes/a", "/nodes/a/explain"])
    async def test_an_execution_that_does_not_exist_is_not_found(self, play: Play, path: str) -> None:
        for name in ("nobody", "01a1deef-a17a-7729-866a-1f199d3ae0ec", "%00", "é"):
            check_problem(await play.get(f"/v1/executions/{name}{path}"), 404, "not_found")

    async def test_a_large_output_is_shown_where_one_node_is_asked_for(self, play: Play) -> None:
        text = "x" * (300 * 1024)
        await play.store(echo("a", config="{{ input.text }}"), output=1)
        execution_id = await play.start(input={"text": text})
        (shown,) = (await play.ended(execution_id))["nodes"]
        assert (shown["output"], shown["output_bytes"]) == (None, len(text) + 2)
        one = await play.get(f"/v1/executions/{execution_id}/nodes/a")
        assert one.json["output"] == text

    async def test_one_node_shows_its_config_and_all_attempts(self, play: Play) -> None:
        await play.store(node("a", config={"n": "{{ input.n }}"}, max_retries=1))
        execution_id = await play.start(input={"n": 1})
        (await play.stage.call("a")).fail(RuntimeError("once"))
        (await play.stage.call("a")).complete("done")
        await play.ended(execution_id)
        shown = (await play.get(f"/v1/executions/{execution_id}/nodes/a")).json
        assert shown.keys() == NODE | {"config", "generation", "max_retries", "attempts"}
        assert (shown["config"], shown["generation"], shown["output"]) == ({"n": 1}, 1, "done")
        assert [(each["number"], each["outcome"]) for each in shown["attempts"]] == [
            (1, "failed"),
            (2, "completed"),
        ]
        answer = await play.get(f"/v1/executions/{execution_id}/nodes/nobody")
        check_problem(answer, 404, "not_found")

    async def test_an_unsettled_node_is_explained(self, play: Play) -> None:
        await play.server.engine.worker.announce()
        await play.store(node("a"), echo("b", "a"))
        execution_id = await play.start()
        call = await play.stage.call("a")
        explained = await play.get(f"/v1/executions/{execution_id}/nodes/b/explain")
        assert explained.json["state"] == "PENDING"
        (reason,) = explained.json["reasons"]
        assert (reason["code"], reason["nodes"]) == ("waiting_for_parents", ["a"])
        assert reason["message"]
        call.complete()
        await play.ended(execution_id)
        explained = await play.get(f"/v1/executions/{execution_id}/nodes/b/explain")
        assert explained.json == {"state": "COMPLETED", "reasons": []}
        answer = await play.get(f"/v1/executions/{execution_id}/nodes/nobody/explain")
        check_problem(answer, 404, "not_found")

    async def test_a_task_whose_queue_no_living_worker_serves_waits_for_one(self, play: Play) -> None:
        engine = play.server.engine
        await play.store(node("a"))
        await engine.worker.stop()
        execution_id = await play.start()

        async def is_queued() -> bool:
            return bool((await play.show(execution_id))["nodes"][0]["state"] == "QUEUED")

        await play.stage.until(is_queued)
        explained = await play.get(f"/v1/executions/{execution_id}/nodes/a/explain")
        assert [reason["code"] for reason in explained.json["reasons"]] == ["no_worker"]


class TestPagesOfNodes:
    async def test_they_follow_each_other_in_the_order_of_the_definition(self, play: Play) -> None:
        await play.store(*[echo(f"n{index}") for index in (3, 1, 4, 0, 2)])
        execution_id = await play.start()
        whole = await play.ended(execution_id)
        found: list[Any] = []
        cursor = ""
        for expected in (2, 2, 1):
            answer = await play.get(f"/v1/executions/{execution_id}/nodes?limit=2{cursor}")
            assert len(answer.json["items"]) == expected
            found += answer.json["items"]
            cursor = f"&cursor={answer.json['next_cursor']}"
        assert answer.json["next_cursor"] is None
        assert found == whole["nodes"]

    async def test_they_are_filtered_by_any_of_the_states(self, play: Play) -> None:
        await play.store(
            fails("a"), echo("b", "a"), echo("c"), fails("d"), node("e"), failure_policy="continue"
        )
        execution_id = await play.start()
        call = await play.stage.call("e")

        async def ids(query: str) -> list[str]:
            answer = await play.get(f"/v1/executions/{execution_id}/nodes?{query}")
            return [each["id"] for each in answer.json["items"]]

        async def has_settled() -> bool:
            return await ids("state=RUNNING") == ["e"] and not await ids("state=PENDING&state=QUEUED")

        await play.stage.until(has_settled)
        assert await ids("state=FAILED") == ["a", "d"]
        assert await ids("state=FAILED&state=SKIPPED") == ["a", "b", "d"]
        first = (await play.get(f"/v1/executions/{execution_id}/nodes?state=FAILED&limit=1")).json
        assert [each["id"] for each in first["items"]] == ["a"]
        second = await ids(f"state=FAILED&limit=1&cursor={first['next_cursor']}")
        assert second == ["d"]
        call.complete()

    @pytest.mark.parametrize(
        ("query", "pointer"),
        [
            ("state=DONE", "/state/0"),
            ("limit=0", "/limit"),
            ("limit=501", "/limit"),
            ("limit=x", "/limit"),
            ("cursor=x", "/cursor"),
            ("cursor=", "/cursor"),
            ("nobody=1", "/nobody"),
        ],
    )
    async def test_a_bad_parameter_is_refused(self, play: Play, query: str, pointer: str) -> None:
        await play.store(echo("a"))
        execution_id = await play.start()
        for path in (f"/v1/executions/{execution_id}/nodes", "/v1/executions"):
            check_problem(await play.get(f"{path}?{query}"), 422, "invalid_request", pointer)


class TestLists:
    async def test_an_execution_is_listed_without_nodes_input_and_output(self, play: Play) -> None:
        await play.store(echo("a"), fails("b"), failure_policy="continue")
        execution_id = await play.start(input={"n": 1})
        whole = await play.ended(execution_id)
        (listed,) = (await play.get("/v1/executions")).json["items"]
        assert listed.keys() == LISTED
        assert listed == {key: whole[key] for key in LISTED}

    async def test_the_newest_comes_first_and_pages_miss_and_repeat_nothing(self, play: Play) -> None:
        await play.store(echo("a"))
        ids = [await play.start() for _ in range(5)]
        found: list[str] = []
        cursor = ""
        for _ in range(3):
            answer = await play.get(f"/v1/executions?limit=2{cursor}")
            found += [each["id"] for each in answer.json["items"]]
            # What comes meanwhile is newer than all of this.
            await play.start()
            cursor = f"&cursor={answer.json['next_cursor']}"
        assert found == ids[::-1]
        assert answer.json["next_cursor"] is None

    async def test_a_list_that_ends_with_a_page_has_no_next(self, play: Play) -> None:
        await play.store(echo("a"))
        await play.start()
        assert (await play.get("/v1/executions?limit=1")).json["next_cursor"] is None

    async def test_counts_add_up_while_nodes_run(self, play: Play) -> None:
        await play.store(node("a"), node("b"), echo("c", "a", "b"), max_concurrency=1)
        execution_id = await play.start()
        await play.stage.call("a")
        (listed,) = (await play.get("/v1/executions")).json["items"]
        assert listed["counts"] == node_counts(PENDING=2, RUNNING=1)
        assert listed["counts"] == (await play.show(execution_id))["counts"]
        assert listed["live"] is True

    async def test_filters_are_met_together(self, play: Play) -> None:
        await play.store(echo("a"), name="one")
        await play.store(echo("a", config=1), name="one")
        await play.store(fails("a"), name="two")
        ids = {
            "old": await play.start("one", version=1, labels={"team": "blue", "tier": "a"}),
            "new": await play.start("one", labels={"team": "blue", "tier": "b:c"}),
            "bad": await play.start("two", labels={"team": "red"}),
        }
        names = {execution_id: name for name, execution_id in ids.items()}
        shown = {name: await play.ended(execution_id) for name, execution_id in ids.items()}

        async def found(**query: Any) -> list[str]:
            answer = await play.get("/v1/executions", params=query)
            assert answer.status == 200, answer.json
            return [names[each["id"]] for each in answer.json["items"]]

        assert await found() == ["bad", "new", "old"]
        assert await found(workflow="one") == ["new", "old"]
        assert await found(workflow="one", version="1") == ["old"]
        assert await found(version="1") == ["bad", "old"]
        assert await found(state="FAILED") == ["bad"]
        assert await found(state=["FAILED", "COMPLETED"]) == ["bad", "new", "old"]
        assert await found(state="RUNNING") == []
        assert await found(label="team:blue") == ["new", "old"]
        assert await found(label=["team:blue", "tier:a"]) == ["old"]
        assert await found(label="tier:b:c") == ["new"]
        assert await found(label="team:") == []
        assert await found(batch="nobody") == []
        assert await found(workflow="one", label="team:red") == []
        created_at = shown["new"]["created_at"]
        assert await found(created_after=created_at) == ["bad", "new"]
        assert await found(created_before=created_at) == ["old"]
        assert await found(created_after="2001-01-01T00:00:00+02:00") == ["bad", "new", "old"]
        assert await found(workflow="' OR 1=1 --") == []

    @pytest.mark.parametrize(
        ("query", "pointer"),
        [
            ("label=team", "/label"),
            ("version=x", "/version"),
            ("version=0", "/version"),
            ("version=99999999999999999999", "/version"),
            ("created_after=yesterday", "/created_after"),
            ("created_after=2026-01-31T09:30:00", "/created_after"),
            ("created_before=2026-01-31", "/created_before"),
            ("created_before=1700000000", "/created_before"),
        ],
    )
    async def test_a_bad_filter_is_refused(self, play: Play, query: str, pointer: str) -> None:
        check_problem(await play.get(f"/v1/executions?{query}"), 422, "invalid_request", pointer)

    async def test_every_state_of_an_execution_is_a_filter(self, play: Play) -> None:
        for state in ExecutionState:
            assert (await play.get(f"/v1/executions?state={state}")).json["items"] == []


@pytest.mark.parametrize("shape", ["chain", "fan"])
async def test_ten_thousand_nodes_are_posted_started_and_shown(
    serve: Serve, stage: Stage, tmp_path: Path, shape: str
) -> None:
    size = 10_000
    if shape == "chain":
        nodes = [echo(f"n{index}", *[f"n{index - 1}"][: index or 0]) for index in range(size)]
    else:
        middle = [f"n{index}" for index in range(size - 2)]
        nodes = [echo("root"), *[echo(name, "root") for name in middle], echo("join", *middle)]
    async with serve(data=tmp_path / "data") as server:
        play = Play(server, stage)
        stored = await play.post("/v1/workflows", json={"name": "large", "nodes": nodes})
        assert stored.status == 201
        answer = await play.post("/v1/workflows/large/executions", json={})
        assert (answer.status, answer.json["counts"]["PENDING"]) == (202, size)
        brief = await play.show(answer.json["id"], "?nodes=brief")
        assert len(brief["nodes"]) == sum(brief["counts"].values()) == size
        last = await play.get(f"/v1/executions/{answer.json['id']}/nodes?limit=500")
        assert len(last.json["items"]) == 500
        assert (await play.control(answer.json["id"], "cancel")).status == 202
        counts = (await play.show(answer.json["id"], "?nodes=none"))["counts"]
        assert counts["COMPLETED"] + counts["CANCELLED"] == size
