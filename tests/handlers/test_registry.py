from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from weft.errors import HandlerError, Problem, SettingsError
from weft.handlers.contract import BadConfig, FunctionNotAllowed, Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry, default_registry, handler

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = HandlerContext(
    execution_id="0198", node_id="n", generation=1, attempt=1, deadline=datetime(2030, 1, 1, tzinfo=UTC)
)


def greet(config: Any, context: HandlerContext) -> Any:
    return config


def user(name: str, schema: Any = None) -> Handler:
    return Handler(name, HandlerKind.USER, greet, schema)


def test_the_handlers_that_ship_are_known() -> None:
    registry = Registry()
    assert {"echo", "input", "output", "python", "sleep"} <= set(registry.names())
    assert registry.knows("echo")
    assert not registry.knows("ecko")
    assert registry.get("echo").queue == "echo"


def test_an_unknown_handler_is_named_with_those_there_are() -> None:
    with pytest.raises(HandlerError, match=r"no handler 'ecko'; this process has: .*echo"):
        Registry().get("ecko")


def test_the_decorator_registers_in_the_default_registry_and_changes_nothing() -> None:
    @handler("test-registry.decorated", config_schema={"type": "object"})
    def decorated(config: Any, context: HandlerContext) -> int:
        return 7

    assert decorated(None, CONTEXT) == 7
    assert default_registry().get("test-registry.decorated").function is decorated
    assert default_registry().problems("test-registry.decorated", 1) != []


def test_a_name_is_taken_once_but_the_same_function_may_be_defined_again() -> None:
    registry = Registry()
    registry.add(user("mine"))
    registry.add(user("mine"))
    with pytest.raises(ValueError, match="already registered by"):
        registry.add(Handler("mine", HandlerKind.USER, lambda config, context: None))
    with pytest.raises(ValueError, match="ships with weft"):
        registry.add(user("echo"))
    with pytest.raises(ValueError, match="name"):
        registry.add(user("no spaces"))


def test_a_handler_takes_config_and_context() -> None:
    with pytest.raises(TypeError, match="config and context"):
        Registry().add(Handler("mine", HandlerKind.USER, lambda: None))


def test_a_bad_schema_is_refused_where_it_is_declared() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match="config_schema of handler 'mine'"):
        registry.add(user("mine", {"type": "nonsense"}))
    assert not registry.knows("mine")
    with pytest.raises(ValueError, match="config_schema"):
        registry.add(user("mine", {"$ref": "https://example.org/schema"}))


SCHEMA = {
    "type": "object",
    "required": ["count"],
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    },
    "anyOf": [{"not": {"required": ["text"]}}, {"properties": {"text": {"maxLength": 3}}}],
    "additionalProperties": {"type": "string"},
}


@pytest.mark.parametrize(
    "config",
    [
        {"count": 1},
        {"count": "{{ input.n }}"},
        "{{ input }}",
        {"count": 1, "mode": "{{ input.mode }}"},
        {"count": 1, "tags": [1, "{{ a }} and {{ b }}"]},
        {"count": 1, "text": "{{ input.text }}"},
    ],
)
def test_a_string_with_a_template_passes_any_type(config: Any) -> None:
    registry = Registry()
    registry.add(user("mine", SCHEMA))
    assert registry.problems("mine", config) == []


@pytest.mark.parametrize(
    ("config", "pointers"),
    [
        ({"mode": "{{ input.mode }}"}, [""]),
        ({"count": "one"}, ["/count"]),
        ({"count": 0, "mode": "c"}, ["/count", "/mode"]),
        ({"count": 1, "tags": ["{{ a }}"]}, ["/tags"]),
        ({"count": 1, "tags": [1, "two", "{{ a }}"]}, ["/tags/1"]),
        ({"count": 1, "tags": {"a": "{{ a }}"}}, ["/tags"]),
        ({"count": "{{ n }}", "x/y~z": 1}, ["/x~1y~0z"]),
        ([], [""]),
    ],
)
def test_what_no_template_can_mend_is_a_problem(config: Any, pointers: list[str]) -> None:
    registry = Registry()
    registry.add(user("mine", SCHEMA))
    assert sorted(problem.pointer for problem in registry.problems("mine", config)) == pointers


def test_a_choice_fails_where_each_branch_fails_for_certain() -> None:
    registry = Registry()
    registry.add(user("mine", {"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]}))
    assert registry.problems("mine", {"prompt": "{{ a }}"}) == []
    assert len(registry.problems("mine", {"model": "{{ a }}"})) == 1


def test_a_filled_config_must_fit_as_it_is() -> None:
    registry = Registry()
    registry.add(user("mine", SCHEMA))
    with pytest.raises(BadConfig, match="/count"):
        registry.bind("mine", {"count": "{{ input.n }}"}, CONTEXT)
    assert registry.bind("mine", {"count": 1}, CONTEXT).call() == {"count": 1}


def test_input_has_no_config() -> None:
    assert Registry().problems("input", {}) == []
    assert Registry().problems("input", None) == []
    assert len(Registry().problems("input", {"a": 1})) == 1


# Functions of the python handler.


def test_a_registered_function_can_be_called() -> None:
    registry = Registry()
    registry.add_function("anything:at_all", lambda a: a + 1)
    config = {"function": "anything:at_all", "args": {"a": 1}}
    assert registry.bind("python", config, CONTEXT).call() == 2


@pytest.mark.parametrize(
    "reference", ["os:system", "builtins:exec", "os.path:join", "", ":", "os", "*:*", "os:*"]
)
def test_everything_else_is_refused(reference: str) -> None:
    with pytest.raises(FunctionNotAllowed) as caught:
        Registry().resolve(reference)
    assert (caught.value.code, caught.value.retryable) == ("function_not_allowed", False)


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "registry_tasks.py").write_text(
        "from os import system\nfrom json import dumps\n__all__ = ['dumps']\n"
        "def public(): return 1\ndef _private(): return 2\nclass Thing: pass\nvalue = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "registry_tasks", raising=False)
    return "registry_tasks"


def test_a_module_that_is_not_allowed_is_not_even_imported(tasks: str) -> None:
    with pytest.raises(FunctionNotAllowed):
        Registry().resolve(f"{tasks}:public")
    assert tasks not in sys.modules


def test_a_star_means_what_the_module_offers(tasks: str) -> None:
    registry = Registry()
    registry.allow([f"{tasks}:*"])
    assert registry.resolve(f"{tasks}:public").function() == 1
    assert registry.resolve(f"{tasks}:dumps").function(1) == "1"
    for name in ("system", "_private", "Thing", "value", "missing", "__builtins__", "public.__globals__"):
        with pytest.raises(FunctionNotAllowed):
            registry.resolve(f"{tasks}:{name}")


def test_a_name_means_that_function_alone(tasks: str) -> None:
    registry = Registry()
    registry.allow([f"{tasks}:_private"])
    assert registry.resolve(f"{tasks}:_private").function() == 2
    with pytest.raises(FunctionNotAllowed):
        registry.resolve(f"{tasks}:public")


@pytest.mark.parametrize(
    "pattern", ["*", "os", "os.*", "*:*", "os:sys*", ".tasks:*", "os:path.join", "a b:c"]
)
def test_a_pattern_that_allows_more_than_it_says_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError, match="module:name"):
        Registry().allow([pattern])


def test_the_context_is_passed_where_it_is_asked_for() -> None:
    registry = Registry()
    registry.add_function("m:asks", lambda context: context)
    registry.add_function("m:any", lambda **everything: everything)
    assert registry.resolve("m:asks").bind({}, CONTEXT).call() is CONTEXT
    assert registry.resolve("m:any").bind({"a": 1}, CONTEXT).call() == {"a": 1}
    # Where a function does not ask for the context, the name is an argument like any other.
    assert registry.resolve("m:any").bind({"context": 1}, CONTEXT).call() == {"context": 1}


@pytest.mark.parametrize("forged", [None, 1, {"idempotency_key": "another", "cancelled": False}])
def test_arguments_cannot_replace_the_context(forged: Any) -> None:
    registry = Registry()
    registry.add_function("m:asks", lambda context=None: context)
    registry.add_function("m:any", lambda context, **rest: (context, rest))

    def annotated(context: HandlerContext) -> None: ...

    registry.add_function("m:annotated", annotated)
    for name in ("m:asks", "m:any", "m:annotated"):
        with pytest.raises(BadConfig, match=f"{name}: its parameter 'context' is filled in by weft"):
            registry.bind("python", {"function": name, "args": {"context": forged}}, CONTEXT)


def test_arguments_that_do_not_fit_are_a_bad_config() -> None:
    registry = Registry()
    registry.add_function("m:f", lambda a: a)
    with pytest.raises(BadConfig, match="m:f"):
        registry.bind("python", {"function": "m:f", "args": {"b": 1}}, CONTEXT)


def test_coroutine_functions_are_told_from_plain_ones() -> None:
    async def coroutine() -> None: ...

    class Callable:
        async def __call__(self) -> None: ...

    registry = Registry()
    for name, function in (("a", coroutine), ("b", Callable()), ("c", print)):
        registry.add_function(f"m:{name}", function)
    assert [registry.resolve(f"m:{name}").is_coroutine for name in "abc"] == [True, True, False]


# Entry points.


def install(folder: Path, name: str, entry_points: str, code: str) -> None:
    """Put a distribution on the path, as an installer would."""
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[weft.handlers]\n{entry_points}\n")


def test_entry_points_are_known_by_name_and_imported_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        "acme_good",
        "acme = acme_good:run\necho = acme_good:run",
        "def run(config, context): return 1",
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    assert registry.knows("acme")
    assert "acme_good" not in sys.modules
    assert registry.bind("acme", None, CONTEXT).call() == 1
    assert registry.bind("echo", 2, CONTEXT).call() == 2


def test_a_broken_entry_point_is_named_and_hurts_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme_broken", "broken = acme_broken:run", "import not_there")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    with pytest.raises(HandlerError, match=r"'broken' of acme_broken 1\.2 .*not_there"):
        registry.get("broken")
    (problem,) = registry.problems("broken", {})
    assert isinstance(problem, Problem)
    assert "acme_broken 1.2" in problem.message
    assert registry.problems("echo", {}) == []
    assert "broken" in registry.names()
