from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from weft.errors import SettingsError
from weft.masking import Mask
from weft.settings import (
    RateLimit,
    ResourceLimit,
    Settings,
    child_environment,
    read_settings,
    settings_page,
    show_settings,
    weak_secrets,
)

ROOT = Path(__file__).parent.parent


def read(tmp_path: Path, **environ: str) -> Settings:
    settings, warnings = read_settings(environ=environ, folder=tmp_path)
    assert warnings == []
    return settings


def test_without_anything_given_every_setting_has_its_default(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings == Settings()
    assert settings.data == Path(".weft")
    assert settings.worker_heartbeat_timeout_seconds == 15
    assert settings.redis_url is None


def test_a_flag_goes_before_the_environment_and_the_environment_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("worker_concurrency = 1\nworker_processes = 1\nmax_deliveries = 1\n")
    settings, _ = read_settings(
        flags={"worker_concurrency": 3, "worker_processes": None},
        environ={"WEFT_WORKER_CONCURRENCY": "2", "WEFT_WORKER_PROCESSES": "2"},
        folder=tmp_path,
    )
    assert (settings.worker_concurrency, settings.worker_processes, settings.max_deliveries) == (3, 2, 1)


def test_weft_config_names_the_file_to_read_instead(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("llm_model = 'here'\n")
    other = tmp_path / "other.toml"
    other.write_text("llm_model = 'there'\n")
    assert read(tmp_path, WEFT_CONFIG=str(other)).llm_model == "there"


def test_a_config_file_that_does_not_exist_is_refused_only_when_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        read(tmp_path, WEFT_CONFIG=str(tmp_path / "missing.toml"))


def test_a_file_that_is_not_toml_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("worker_grace = = 3")
    with pytest.raises(SettingsError, match=r"weft\.toml is not TOML"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("7d", 604800),
        (" 3 s ", 3),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_its_unit(tmp_path: Path, text: str, seconds: float) -> None:
    assert read(tmp_path, WEFT_WORKER_GRACE=text).worker_grace_seconds == seconds


@pytest.mark.parametrize("text", ["-1", "5 minutes", "1:30", "nan", "inf", "1e400", "s", "1m30s"])
def test_a_duration_of_another_form_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="WEFT_WORKER_GRACE needs"):
        read(tmp_path, WEFT_WORKER_GRACE=text)


def test_an_interval_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="above 0"):
        read(tmp_path, WEFT_ORCHESTRATOR_SWEEP_INTERVAL="0")


def test_in_the_file_numbers_lists_and_tables_are_those_of_toml(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(
        'worker_grace = 2.5\nhttp_allow = ["10.0.0.0/8", "localhost:8080"]\nretention = "30d"\n'
        "[resource_limits.gemini_api]\nrate_per_second = 10\n"
    )
    settings = read(tmp_path)
    assert settings.worker_grace_seconds == 2.5
    assert settings.http_allow == ("10.0.0.0/8", "localhost:8080")
    assert settings.retention_seconds == 30 * 86400
    assert settings.resource_limits == {"gemini_api": ResourceLimit(10.0, 1)}


def test_lists_are_separated_by_commas_and_blanks_around_them_do_not_count(tmp_path: Path) -> None:
    assert read(tmp_path, WEFT_IMPORTS="orders, invoices,,").imports == ("orders", "invoices")


def test_resource_limits_are_a_json_object(tmp_path: Path) -> None:
    text = json.dumps({"a": {"rate_per_second": 0.5, "burst": 4}})
    assert read(tmp_path, WEFT_RESOURCE_LIMITS=text).resource_limits == {"a": ResourceLimit(0.5, 4)}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": 3}',
        '{"a": {}}',
        '{"a": {"rate_per_second": 0}}',
        '{"a": {"rate_per_second": true}}',
        '{"a": {"rate_per_second": 1, "burst": 0}}',
        '{"a": {"rate_per_second": 1, "bursts": 2}}',
    ],
)
def test_resource_limits_of_another_form_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="WEFT_RESOURCE_LIMITS"):
        read(tmp_path, WEFT_RESOURCE_LIMITS=text)


def test_a_rate_is_requests_per_unit_or_off(tmp_path: Path) -> None:
    assert read(tmp_path, WEFT_API_RATE_LIMIT="5/second").api_rate_limit == RateLimit(5, 1.0)
    assert read(tmp_path, WEFT_API_RATE_LIMIT="off").api_rate_limit is None
    with pytest.raises(SettingsError, match="60/minute"):
        read(tmp_path, WEFT_API_RATE_LIMIT="fast")


def test_every_bad_value_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("max_nodes = true\n")
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, WEFT_WORKER_CONCURRENCY="many", WEFT_METRICS_PORT="70000", WEFT_DURABILITY="some")
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert any("WEFT_METRICS_PORT needs a whole number from 1 to 65535" in line for line in lines)
    assert any("weft.toml: max_nodes" in line for line in lines)


def test_durability_is_strict_or_relaxed(tmp_path: Path) -> None:
    assert read(tmp_path).durability == "strict"
    assert read(tmp_path, WEFT_DURABILITY="relaxed").durability == "relaxed"
    (tmp_path / "weft.toml").write_text('durability = "relaxed"\n')
    assert read(tmp_path).durability == "relaxed"
    with pytest.raises(SettingsError, match="WEFT_DURABILITY needs strict or relaxed, not 'some'"):
        read(tmp_path, WEFT_DURABILITY="some")


def test_a_secret_may_lie_in_a_file_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    assert read(tmp_path, WEFT_LLM_API_KEY_FILE=str(tmp_path / "key")).llm_api_key == "s3cret"


def test_a_secret_given_twice_or_in_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="both set"):
        read(tmp_path, WEFT_LLM_API_KEY="a", WEFT_LLM_API_KEY_FILE="b")
    with pytest.raises(SettingsError, match="WEFT_REDIS_URL cannot be read from its file"):
        read(tmp_path, WEFT_REDIS_URL_FILE=str(tmp_path / "missing"))


def test_no_secret_shows_in_a_message_or_in_the_settings_themselves(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, WEFT_DATABASE_URL="mysql://user:hunter2@host/db")
    assert "hunter2" not in str(caught.value)
    settings = read(
        tmp_path,
        WEFT_DATABASE_URL="postgresql://user:hunter2@host/db",
        WEFT_LLM_API_KEY="hunter2",
    )
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("WEFT_DATABASE_URL", "postgresql://user:h%40nter%202@host/db"),
        ("WEFT_DATABASE_URL", "postgresql://user@host/db?password=h%40nter%202"),
        ("WEFT_REDIS_URL", "redis://:h%40nter%202@host:6379/0"),
        ("WEFT_REDIS_URL", "redis+sentinel://:h%40nter%202@one:26379,two:26379/main"),
    ],
)
def test_the_password_of_a_url_is_masked_by_itself(tmp_path: Path, name: str, url: str) -> None:
    """A driver names the password without the URL, decoded or as it was written."""
    mask = Mask(read(tmp_path, **{name: url}).secrets())
    for shown in (url, "password h@nter 2 is wrong", "as h%40nter%202", "{'password': 'h@nter 2'}"):
        assert not re.search(r"h(@|%40)nter", mask.text(shown))


def test_a_password_that_is_the_name_of_the_database_takes_no_word_out_of_the_log(tmp_path: Path) -> None:
    url = "postgresql://weft:weft@host/weft"
    mask = Mask(read(tmp_path, WEFT_DATABASE_URL=url).secrets())
    assert mask.text("weft.api: listening") == "weft.api: listening"
    assert mask.text(f"cannot reach {url}") == "cannot reach ***"


def test_keys_are_a_list_and_in_a_file_may_be_lines(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\ntwo, three\n\n")
    assert read(tmp_path, WEFT_API_KEYS_FILE=str(tmp_path / "keys")).api_keys == ("one", "two", "three")
    assert read(tmp_path, WEFT_API_KEYS="one, two").api_keys == ("one", "two")
    assert "hunter2" not in repr(read(tmp_path, WEFT_API_KEYS="hunter2"))


@pytest.mark.parametrize("keys", ["hunter2 two", "hunter2é", "hunter2\x01", "hunter2" * 100, ",", " , "])
def test_keys_that_could_not_be_sent_and_none_where_some_are_meant_are_refused(
    tmp_path: Path, keys: str
) -> None:
    with pytest.raises(SettingsError, match="WEFT_API_KEYS") as caught:
        read(tmp_path, WEFT_API_KEYS=keys)
    assert "hunter2" not in str(caught.value)


def test_an_unknown_name_is_a_warning_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("max_node = 3\n")
    _, warnings = read_settings(environ={"WEFT_WORKER_CONCURENCY": "3", "WEFTING": "x"}, folder=tmp_path)
    assert warnings == [
        "WEFT_WORKER_CONCURENCY is not a setting of weft; did you mean WEFT_WORKER_CONCURRENCY?",
        f"{tmp_path / 'weft.toml'}: max_node is not a setting of weft; did you mean max_nodes?",
    ]


def test_names_read_elsewhere_are_not_unknown(tmp_path: Path) -> None:
    read(
        tmp_path,
        WEFT_URL="http://x",
        WEFT_API_KEY="k",
        WEFT_TEST_REDIS_URL="redis://x",
        WEFT_DEBUG="1",
        WEFT_SECRET_A="x",
    )


def test_a_variable_set_to_nothing_is_not_set(tmp_path: Path) -> None:
    assert read(tmp_path, WEFT_REDIS_URL="", WEFT_WORKER_CONCURRENCY="") == Settings()


def test_a_worker_must_be_able_to_miss_a_heartbeat(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="longer than"):
        read(tmp_path, WEFT_WORKER_HEARTBEAT_INTERVAL="15")


def test_the_bounds_of_the_core_are_those_of_the_settings(tmp_path: Path) -> None:
    bounds = read(tmp_path, WEFT_MAX_NODES="7").bounds()
    assert (bounds.max_nodes, bounds.max_edges) == (7, 500_000)


def test_the_committed_page_is_the_table_in_the_code() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page(), (
        "redraw it: python -m weft.settings > docs/settings.md"
    )


def test_the_environment_of_a_child_has_no_secret_setting_and_all_else() -> None:
    kept = [
        "WEFT_API_KEYS",
        "WEFT_API_KEYS_FILE",
        "WEFT_API_KEY",
        "WEFT_API_KEY_FILE",
        "WEFT_DATABASE_URL",
        "WEFT_DATABASE_URL_FILE",
        "WEFT_REDIS_URL_FILE",
        "WEFT_CELERY_BROKER_URL",
        "WEFT_LLM_API_KEY",
        "WEFT_SECRET_A",
        "WEFT_SECRET_A_FILE",
        "WEFT_redis_url",
    ]
    others = ["PATH", "WEFT_CONFIG", "WEFT_URL", "WEFT_LLM_MODEL", "REDIS_URL", "MY_SECRET", "WEFT_SECRETS"]
    assert child_environment(dict.fromkeys(kept + others, "x")) == dict.fromkeys(others, "x")


# --- Secrets in places where others can see them.

PASSWORD = "pa55w0rd"
BAD_URLS = [
    f"postgresql://weft:{PASSWORD}/x@db/weft",
    f"postgresql://weft:{PASSWORD}#x@db/weft",
    f"postgresql://weft:{PASSWORD}?x@db/weft",
    f"postgresql://weft:x@{PASSWORD}:{PASSWORD}@db:54x2/weft",
    f"postgresql://weft@db:{PASSWORD}/weft",
    f"postgresql://[{PASSWORD}/weft",
    f"mysql://weft:{PASSWORD}@db/weft",
    f"weft:{PASSWORD}@db/weft",
]


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "LLM_BASE_URL"])
@pytest.mark.parametrize("url", BAD_URLS)
def test_no_part_of_a_bad_url_is_shown(name: str, url: str) -> None:
    schemes = {"REDIS_URL": "redis", "CELERY_BROKER_URL": "amqp", "LLM_BASE_URL": "https"}
    url = url.replace("postgresql", schemes.get(name, "postgresql"))
    environ = {f"WEFT_{name}": url}
    if name == "CELERY_BROKER_URL" and ("mysql" in url or "://" not in url):
        # Celery reads more than weft knows of.
        assert PASSWORD not in repr(read_settings(environ=environ))
        return
    with pytest.raises(SettingsError, match=f"WEFT_{name} ") as caught:
        read_settings(environ=environ)
    assert PASSWORD not in str(caught.value)


def test_what_a_password_needs_is_said() -> None:
    with pytest.raises(SettingsError, match=r"in a password, a character such as / .* written as %2F"):
        read_settings(environ={"WEFT_DATABASE_URL": f"postgresql://weft:{PASSWORD}/x@db/weft"})


def test_a_url_of_a_model_has_no_password() -> None:
    with pytest.raises(SettingsError, match="WEFT_LLM_BASE_URL holds a user or a password") as caught:
        read_settings(environ={"WEFT_LLM_BASE_URL": f"https://me:{PASSWORD}@llm/v1"})
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://weft:p%2Fw@db:5432,other:5433/weft?sslmode=require",
        "postgresql:///weft?host=/var/run/postgresql&user=a@b",
        "postgresql://weft:p@ss@[::1]:5432/weft",
        "postgres://db",
    ],
)
def test_urls_that_can_be_read_are_taken(url: str) -> None:
    assert read_settings(environ={"WEFT_DATABASE_URL": url})[0].database_url == url


def test_a_broker_may_be_several() -> None:
    url = "amqp://u:p@one:5672//;amqp://u:p@two//"
    assert read_settings(environ={"WEFT_CELERY_BROKER_URL": url})[0].celery_broker_url == url


def test_short_keys_and_files_that_all_can_read_are_named(tmp_path: Path) -> None:
    key, file = tmp_path / "key", tmp_path / "weft.toml"
    key.write_text("opensesame\n")
    file.write_text(f'database_url = "postgresql://weft:{PASSWORD}@db/weft"\n')
    for path in (key, file):
        path.chmod(0o644)
    environ = {"WEFT_API_KEYS_FILE": str(key)}
    settings, _ = read_settings(environ=environ, folder=tmp_path)
    short, *exposed = weak_secrets(settings, environ=environ, folder=tmp_path)
    assert short.startswith("a key in WEFT_API_KEYS has fewer than 16 characters")
    assert sorted(text.partition(" can be")[0] for text in exposed) == sorted(
        [str(file), f"WEFT_API_KEYS_FILE ({key})"]
    )
    assert all("every user of this machine: chmod 600" in text for text in exposed)
    assert "opensesame" not in "".join([short, *exposed])
    for path in (key, file):
        path.chmod(0o640)
    key.write_text("a-key-that-is-long-enough\n")
    settings, _ = read_settings(environ=environ, folder=tmp_path)
    assert weak_secrets(settings, environ=environ, folder=tmp_path) == []


def test_a_file_without_secrets_may_be_read_by_all(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("max_nodes = 7\n")
    (tmp_path / "weft.toml").chmod(0o644)
    settings, _ = read_settings(environ={}, folder=tmp_path)
    assert weak_secrets(settings, environ={}, folder=tmp_path) == []


SETTING_NAMES = [item.name.removesuffix("_seconds").upper() for item in fields(Settings)]
WITHOUT_PREFIX = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(SETTING_NAMES)})(?![A-Za-z0-9_])")


def texts_of(source: str) -> list[str]:
    """Return the string literals of a module, docstrings aside: what a message can be made of."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented)]
    docstrings = {id(first.value) for first, *_ in filter(None, bodies) if isinstance(first, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def test_every_message_names_a_setting_as_users_set_it() -> None:
    """The table in settings.py is left out: `docs/settings.md` shows it below a line on the prefix."""
    assert WITHOUT_PREFIX.search("raise MAX_NODES")
    assert not WITHOUT_PREFIX.search("raise WEFT_MAX_NODES")
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted((ROOT / "src" / "weft").rglob("*.py"))
        if path.name != "settings.py"
        for text in texts_of(path.read_text(encoding="utf-8"))
        if WITHOUT_PREFIX.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md", "docs"])
def test_every_page_names_a_setting_as_users_set_it(page: str) -> None:
    without_prefix = re.compile(rf"`({'|'.join(SETTING_NAMES)})(?![A-Za-z0-9_])")
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / page).rglob("*.md")) or [ROOT / page]
        if path.name != "settings.md"
        for name in without_prefix.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


class TestWhereValuesCameFrom:
    def test_each_setting_that_was_given_has_its_source(self, tmp_path: Path) -> None:
        (tmp_path / "weft.toml").write_text("worker_concurrency = 1\nmax_deliveries = 1\nlogs = 'off'\n")
        (tmp_path / "keys").write_text("a-key-in-a-file-0123456789\n")
        settings, _ = read_settings(
            flags={"worker_concurrency": 3, "worker_processes": None},
            environ={"WEFT_MAX_DELIVERIES": "2", "WEFT_API_KEYS_FILE": str(tmp_path / "keys")},
            folder=tmp_path,
        )
        assert settings.sources == {
            "worker_concurrency": "flag",
            "max_deliveries": "environment",
            "api_keys": "environment",
            "logs": "file",
        }
        assert settings == Settings(
            worker_concurrency=3, max_deliveries=2, logs="off", api_keys=("a-key-in-a-file-0123456789",)
        )

    def test_what_a_command_sets_aside_was_not_given(self, tmp_path: Path) -> None:
        settings = read(tmp_path, WEFT_REDIS_URL="redis://localhost", WEFT_MAX_DELIVERIES="2")
        kept = settings.with_defaults("redis_url", "transport")
        assert (kept.redis_url, kept.max_deliveries) == (None, 2)
        assert kept.sources == {"max_deliveries": "environment"}


class TestShowing:
    def test_values_are_shown_as_they_are_written(self, tmp_path: Path) -> None:
        settings = read(
            tmp_path,
            WEFT_API_RATE_LIMIT="30/hour",
            WEFT_HTTP_ALLOW="one.example, two.example",
            WEFT_RESOURCE_LIMITS='{"gemini": {"rate_per_second": 2}}',
            WEFT_WORKER_GRACE="500ms",
        )
        shown = {one.name: one.value for one in show_settings(settings)}
        assert shown["WEFT_API_RATE_LIMIT"] == "30/hour"
        assert shown["WEFT_HTTP_ALLOW"] == "one.example, two.example"
        assert shown["WEFT_RESOURCE_LIMITS"] == '{"gemini": {"rate_per_second": 2.0, "burst": 1}}'
        assert shown["WEFT_WORKER_GRACE"] == "0.5 s"
        # What is shown means the same where it is set.
        again = read(
            tmp_path,
            **{name: value for name, value in shown.items() if value is not None and name in MEANT_TO_COPY},
        )
        assert again == settings

    def test_no_text_is_markdown_and_no_secret_is_in_it(self) -> None:
        settings = Settings(
            database_url="postgresql://weft:hunter2@localhost/weft", api_keys=("a-key-0123456789",)
        )
        shown = show_settings(settings)
        assert not [one for one in shown if "`" in one.doc + one.default or "](" in one.doc]
        assert "hunter2" not in str(shown)
        assert "a-key-" not in str(shown)


MEANT_TO_COPY = {"WEFT_API_RATE_LIMIT", "WEFT_HTTP_ALLOW", "WEFT_RESOURCE_LIMITS", "WEFT_WORKER_GRACE"}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://weft.example", "https://weft.example"),
        ("http://127.0.0.1:8700/", "http://127.0.0.1:8700"),
        ("https://ops.example/weft/", "https://ops.example/weft"),
    ],
)
def test_the_public_url_may_have_a_path_and_ends_without_a_slash(tmp_path: Path, text: str, url: str) -> None:
    assert read(tmp_path, WEFT_PUBLIC_URL=text).public_url == url


@pytest.mark.parametrize(
    "text", ["weft.example", "ftp://weft.example", "https://a:b@weft.example", "https://weft.example/?a=1"]
)
def test_a_public_url_that_makes_no_link_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="WEFT_PUBLIC_URL"):
        read(tmp_path, WEFT_PUBLIC_URL=text)
