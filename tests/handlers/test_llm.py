"""``llm_service`` against a real server on loopback that says what it is told to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.handlers.outside import caller, problems, run_node

from weft.clock import RealClock
from weft.core.payload import MAX_VALUES
from weft.handlers.contract import BadConfig
from weft.handlers.http.address import BlockedAddress
from weft.handlers.http.failure import BadResponse, HttpStatus, NetworkError, ResponseTooLarge
from weft.testing.fake_llm import FakeLLM, cut, drip, failed, hang, malformed, rate_limited, reply
from weft.testing.http_server import Answer, json_answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.testing.fake_llm import ChatRequest, Turn

LLM = "llm_service"
KEY = "sk-operator-0123456789"
AT_ONCE = {"retry": {"base_delay_seconds": 0.01, "max_delay_seconds": 0.01}}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture
def llm() -> Iterator[FakeLLM]:
    with FakeLLM() as llm:
        yield llm


def settings_for(llm: FakeLLM, **others: Any) -> dict[str, Any]:
    return {"llm_base_url": llm.base_url, "llm_model": "small", "allow": (), **others}


# --- What goes out.


async def test_a_prompt_is_a_message_and_the_output_is_the_reply(llm: FakeLLM) -> None:
    async with caller(**settings_for(llm)) as call:
        output = await call({"prompt": "Say something."}, handler=LLM)
    assert output == {
        "text": "You said: Say something.",
        "json": None,
        "model": "small",
        "finish_reason": "stop",
        "usage": {"input_tokens": 2, "output_tokens": 4, "total_tokens": 6},
    }
    assert llm.requests[0].body == {
        "model": "small",
        "messages": [{"role": "user", "content": "Say something."}],
    }
    assert llm.requests[0].headers["idempotency-key"] == "execution/node/1"


async def test_everything_a_config_says_is_sent(llm: FakeLLM) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    async with caller(**settings_for(llm)) as call:
        await call(
            {
                "messages": messages,
                "system": "Be brief.",
                "model": "large",
                "temperature": 0.2,
                "max_tokens": 50,
                "extra": {"top_p": 0.5, "temperature": 1},
            },
            handler=LLM,
        )
    assert llm.requests[0].body == {
        "model": "large",
        "messages": [{"role": "system", "content": "Be brief."}, *messages],
        "temperature": 1,
        "max_tokens": 50,
        "top_p": 0.5,
    }


async def test_without_any_model_it_is_the_config_that_is_bad(llm: FakeLLM) -> None:
    async with caller(**settings_for(llm, llm_model=None)) as call:
        with pytest.raises(BadConfig, match="LLM_MODEL"):
            await call({"prompt": "x"}, handler=LLM)
    assert llm.requests == []


@pytest.mark.parametrize("end", ["", "/", "?api-version=1"])
async def test_the_base_url_may_end_in_a_slash_or_a_query(end: str) -> None:
    with RecordingService() as service:
        async with caller(llm_base_url=f"{service.url}/v1{end}", llm_model="m", allow=()) as call:
            with pytest.raises(BadResponse):
                await call({"prompt": "x"}, handler=LLM)
        assert service.calls[0].request.target == "/v1/chat/completions" + end.strip("/")


# --- Keys and addresses.


async def test_the_operators_key_goes_to_the_operators_url(llm: FakeLLM) -> None:
    async with caller(**settings_for(llm, llm_api_key=KEY)) as call:
        await call({"prompt": "x"}, handler=LLM)
        await call({"prompt": "x", "api_key": "mine"}, handler=LLM)
    sent = [request.headers["authorization"] for request in llm.requests]
    assert sent == [f"Bearer {KEY}", "Bearer mine"]


@pytest.mark.parametrize("config", [{}, {"api_key": "mine"}])
async def test_a_nodes_own_url_is_never_told_the_operators_key(config: Any, llm: FakeLLM) -> None:
    async with caller(llm_api_key=KEY, llm_model="m", llm_base_url=llm.base_url) as call:
        await call({"prompt": "x", "base_url": llm.base_url, **config}, handler=LLM)
    authorization = llm.requests[0].headers.get("authorization")
    assert authorization == ("Bearer mine" if config else None)


async def test_a_nodes_own_url_is_checked_like_any_other(llm: FakeLLM) -> None:
    async with caller(**settings_for(llm)) as call:
        with pytest.raises(BlockedAddress):
            await call({"prompt": "x", "base_url": llm.base_url}, handler=LLM)
    assert llm.requests == []


async def test_a_redirect_of_the_operators_server_leads_inside_no_more(llm: FakeLLM) -> None:
    with RecordingService() as inside:
        llm.script(Answer(307, headers={"Location": inside.url}))
        async with caller(**settings_for(llm, llm_api_key=KEY)) as call:
            with pytest.raises(BlockedAddress):
                await call({"prompt": "x"}, handler=LLM)
        llm.script(Answer(307, headers={"Location": f"{inside.url}/chat/completions"}))
        async with caller(**settings_for(llm, llm_api_key=KEY, allow=("127.0.0.1",))) as call:
            with pytest.raises(BadResponse):
                await call({"prompt": "x"}, handler=LLM)
        assert [request.request.headers.get("authorization") for request in inside.calls] == [None]


async def test_the_key_is_in_no_output_and_no_error(llm: FakeLLM) -> None:
    def tell(request: ChatRequest) -> Answer:
        return failed(401, f"Incorrect API key provided: {request.headers['authorization']}")

    llm.script(
        reply(f"your key is {KEY}"),
        tell,
        json_answer({"error": {"message": KEY}}),
        reply(f'{{"key": "{KEY}"}}'),
    )
    shown = []
    for config in ({}, {}, {}, {"response_schema": {"required": ["name"]}}):
        node = await run_node(
            {"prompt": "x", **config},
            handler=LLM,
            llm_api_key=KEY,
            llm_model="m",
            llm_base_url=llm.base_url,
        )
        shown.append(str(node))
    assert [KEY in text for text in shown] == [False] * 4
    assert all("***" in text for text in shown)


async def test_a_key_that_cannot_be_a_header_is_not_shown(llm: FakeLLM) -> None:
    async with caller(**settings_for(llm, llm_api_key="sk\r\nX-Injected: 1")) as call:
        with pytest.raises(BadConfig) as caught:
            await call({"prompt": "x"}, handler=LLM)
    assert "Injected" not in str(caught.value)
    assert llm.requests == []


# --- Replies with a schema.


async def test_a_reply_that_fits_its_schema_is_given_as_json(llm: FakeLLM) -> None:
    async with caller(**settings_for(llm)) as call:
        output = await call({"prompt": "Who?", "response_schema": PERSON}, handler=LLM)
    assert output["json"] == {"name": "text", "age": 1}
    assert output["text"] == '{"name":"text","age":1}'
    assert llm.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": PERSON},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ada is 36.", "not JSON"),
        ("", "not JSON"),
        ('{"name": "Ada", "age": NaN}', "not JSON"),
        ('{"name": "Ada", "age"', "not JSON"),
        ('{"name": "Ada"}', "does not fit response_schema"),
        ('{"name": "Ada", "age": "36"}', "/age"),
    ],
)
async def test_a_reply_that_breaks_its_schema_retries(text: str, message: str, llm: FakeLLM) -> None:
    llm.script(reply(text))
    node = await run_node(
        {"prompt": "Who?", "response_schema": PERSON},
        handler=LLM,
        fields={"max_retries": 1, **AT_ONCE},
        llm_base_url=llm.base_url,
        llm_model="m",
    )
    assert (node["state"], node["attempt"]) == ("COMPLETED", 2)
    error = node["attempts"][0]["error"]
    assert (error["code"], error["retryable"]) == ("bad_response", True)
    assert message in error["message"]
    assert error["details"]["text"] == text


@pytest.mark.parametrize(
    "schema", [{"pattern": "("}, {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:1/x"}]
)
async def test_a_schema_that_cannot_be_used_is_the_configs_fault(schema: Any, llm: FakeLLM) -> None:
    async with caller(**settings_for(llm)) as call:
        with pytest.raises(BadConfig, match="response_schema"):
            await call({"prompt": "x", "response_schema": schema}, handler=LLM)
    assert llm.requests == []


# --- What goes wrong (F59).


@pytest.mark.parametrize(
    ("turn", "error"),
    [
        (failed(500), HttpStatus),
        (failed(503), HttpStatus),
        (malformed(), BadResponse),
        (json_answer({"error": {"message": "overloaded"}}), BadResponse),
        (json_answer({"choices": []}), BadResponse),
        (json_answer({"choices": [{}]}), BadResponse),
        (json_answer([]), BadResponse),
        (Answer(200), BadResponse),
        (cut(), NetworkError),
    ],
)
async def test_a_server_that_fails_or_talks_nonsense_is_asked_again(
    turn: Turn, error: type[HttpStatus | BadResponse | NetworkError], llm: FakeLLM
) -> None:
    llm.script(turn, turn)
    async with caller(**settings_for(llm)) as call:
        with pytest.raises(error):
            await call({"prompt": "x"}, handler=LLM)
    node = await run_node(
        {"prompt": "x"},
        handler=LLM,
        fields={"max_retries": 1, **AT_ONCE},
        llm_base_url=llm.base_url,
        llm_model="m",
    )
    assert (node["state"], node["attempt"]) == ("COMPLETED", 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_the_server_refuses_is_not_asked_again(status: int, llm: FakeLLM) -> None:
    llm.script(failed(status, "no such model"))
    async with caller(**settings_for(llm)) as call:
        with pytest.raises(HttpStatus) as caught:
            await call({"prompt": "x"}, handler=LLM)
    assert not caught.value.retryable
    assert caught.value.details == {"status": status, "body": '{"error":{"message":"no such model"}}'}


@pytest.mark.parametrize("as_date", [False, True])
async def test_a_rate_limit_is_kept_to(as_date: bool, llm: FakeLLM) -> None:
    until = datetime.fromtimestamp(RealClock().now() // 1_000_000 + 2, UTC)
    llm.script(rate_limited(until if as_date else 0.5))
    node = await run_node(
        {"prompt": "x"},
        handler=LLM,
        fields={"max_retries": 1, **AT_ONCE},
        llm_base_url=llm.base_url,
        llm_model="m",
    )
    assert (node["state"], node["attempts"][0]["error"]["details"]["status"]) == ("COMPLETED", 429)
    first, second = llm.requests
    earliest = until.timestamp() * 1_000_000 if as_date else first.at + 500_000
    assert second.at >= earliest


@pytest.mark.parametrize("turn", [hang(), drip(pause_seconds=0.02)])
async def test_silence_and_a_drip_end_at_the_nodes_timeout(turn: Turn, llm: FakeLLM) -> None:
    llm.script(turn)
    node = await run_node(
        {"prompt": "x"},
        handler=LLM,
        fields={"timeout_seconds": 0.3},
        llm_base_url=llm.base_url,
        llm_model="m",
    )
    assert (node["error"]["code"], node["error"]["retryable"]) == ("timeout", True)


async def test_a_reply_over_the_limit_is_too_large(llm: FakeLLM) -> None:
    llm.script(reply("x" * 5000))
    async with caller(**settings_for(llm, max_response_bytes=4000)) as call:
        with pytest.raises(ResponseTooLarge):
            await call({"prompt": "x"}, handler=LLM)


async def test_a_reply_of_too_many_values_is_no_reply(llm: FakeLLM) -> None:
    llm.script(reply("[" + "0," * MAX_VALUES + "0]"))
    async with caller(**settings_for(llm)) as call:
        with pytest.raises(BadResponse, match="1,000,001 values; the limit is 1,000,000"):
            await call({"prompt": "x", "response_schema": {"type": "array"}}, handler=LLM)


async def test_a_reply_cut_short_by_its_length_is_told_as_such(llm: FakeLLM) -> None:
    llm.script(reply("Once upon", finish_reason="length"))
    async with caller(**settings_for(llm)) as call:
        output = await call({"prompt": "Tell me a story."}, handler=LLM)
    assert (output["text"], output["finish_reason"]) == ("Once upon", "length")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, None),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}], "ab"),
    ],
)
async def test_a_message_may_have_no_text_or_several(content: Any, text: str | None, llm: FakeLLM) -> None:
    llm.script(json_answer({"choices": [{"message": {"content": content}}]}))
    async with caller(**settings_for(llm)) as call:
        output = await call({"prompt": "x"}, handler=LLM)
    assert output == {
        "text": text,
        "json": None,
        "model": None,
        "finish_reason": None,
        "usage": {"input_tokens": None, "output_tokens": None, "total_tokens": None},
    }


# --- Validation.


@pytest.mark.parametrize(
    ("config", "pointers"),
    [
        ({}, {""}),
        (None, {""}),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, {"/prompt"}),
        ({"prompt": "{{ input.x }}", "messages": "{{ input.y }}"}, {"/prompt"}),
        ({"prompt": 7}, {"/prompt"}),
        ({"messages": []}, {"/messages"}),
        ({"messages": [{"content": "x"}]}, {"/messages/0"}),
        ({"prompt": "x", "temperature": "hot", "max_tokens": 0}, {"/temperature", "/max_tokens"}),
        ({"prompt": "x", "stream": True}, {""}),
        ({"prompt": "x", "extra": {"messages": [], "stream": True}}, {"/extra/messages", "/extra/stream"}),
        ({"prompt": "x", "response_schema": {"type": "strin"}}, {"/response_schema/type"}),
        ({"prompt": "x", "response_schema": 7}, {"/response_schema"}),
    ],
)
def test_a_config_that_does_not_fit_is_named_by_its_fields(config: Any, pointers: set[str]) -> None:
    assert set(problems(LLM, config)) == pointers


@pytest.mark.parametrize(
    "config",
    [
        {"prompt": "{{ input.prompt }}"},
        {"messages": "{{ input.messages }}", "temperature": "{{ input.temperature }}"},
        {"messages": [{"role": "{{ input.role }}"}], "extra": "{{ input.extra }}"},
        {"prompt": "x", "response_schema": "{{ input.schema }}", "model": "{{ input.model }}"},
    ],
)
def test_templates_pass_wherever_they_stand(config: Any) -> None:
    assert problems(LLM, config) == {}
