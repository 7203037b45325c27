"""One frozen ``Settings``, read and checked once, at start.

A value comes from a flag, else from the environment (``WEFT_WORKER_GRACE``), else from ``weft.toml``
(``worker_grace``), else from the default below. Every field of ``Settings`` is one setting: its
attribute is the setting's name in lower case, with ``_seconds`` behind it where it is a duration, and
beside its default it says how it is read and what it means. ``docs/settings.md`` is that table.

Nothing heavy is imported here: the command line reads its settings before it knows what it will do.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.definition.bounds import Bounds
from weft.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import Field

    from weft.definition.model import NotifyTarget

PREFIX = "WEFT_"
# How to import what a file of the current folder names.
TRUST_IT = "repeat the command with --trust"

# Names that are read elsewhere: by the client, by the handlers, by the tests, or before the fields.
_OTHER_NAMES = frozenset({"WEFT_CONFIG", "WEFT_DEBUG", "WEFT_URL", "WEFT_API_KEY", "WEFT_API_KEY_FILE"})
SECRET_PREFIX = "WEFT_SECRET_"  # noqa: S105 - the beginning of its name
_OTHER_PREFIXES = (SECRET_PREFIX, "WEFT_TEST_")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests in any stretch of so many seconds."""

    requests: int
    per_seconds: float


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """A token bucket for all nodes of one ``resource_tag``."""

    rate_per_second: float
    burst: int = 1


# --- How values are read. A reader takes text, or the value TOML or a flag gave, and raises ValueError
# --- with a phrase that completes "WEFT_X: …".

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d)?")
_RATE_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_RATE = re.compile(r"([1-9]\d{0,9})\s*/\s*(second|minute|hour|day)")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"needs text, not {value!r}")
    return value.strip()


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _list(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else _text(value).split(",")
    return tuple(text for part in parts if (text := _text(part)))


def _keys(value: object) -> tuple[str, ...]:
    """Keys, separated by commas or, as a file may have them, by lines."""
    keys = _list(",".join(value.splitlines()) if isinstance(value, str) else value)
    if not keys:
        # An operator names a file of keys to keep others out; an empty file must not let everybody in.
        raise ValueError("holds no key")
    # A message must not hold a key, or what is almost one.
    if not all(key.isascii() and key.isprintable() and " " not in key and len(key) <= 500 for key in keys):
        raise ValueError("needs keys of printable ASCII without spaces, up to 500 characters each")
    return keys


def _duration(value: object) -> float:
    """Seconds above 0."""
    seconds = _duration_or_zero(value)
    if seconds == 0:
        raise ValueError("needs a duration above 0")
    return seconds


def _duration_or_zero(value: object) -> float:
    """Seconds, 0 included."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    else:
        raise ValueError(f"needs seconds or a duration like 500ms, 30s, 5m or 7d, not {value!r}")
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"needs a duration from 0 up, not {value!r}")
    return seconds


def _whole(low: int, high: int | None = None) -> Callable[[object], int]:
    wanted = f"a whole number from {low} up" if high is None else f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
            number = int(value)
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or number < low
            or (high is not None and number > high)
        ):
            raise ValueError(f"needs {wanted}, not {value!r}")
        return number

    return read


def _choice(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"needs {' or '.join(words)}, not {value!r}")
        return str(value)

    return read


def _durability(value: object) -> str:
    if value == "checkpoint":
        raise ValueError(
            "needs strict or relaxed: checkpoint was removed. Set relaxed if commits need not wait for the "
            "database's disk; strict, the default, waits"
        )
    return _choice("strict", "relaxed")(value)


def _url(*schemes: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = _text(value)
        # The value may hold a password: the message must not.
        if not text.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise ValueError(f"needs a URL that starts with {' or '.join(f'{s}://' for s in schemes)}")
        _check_authority(text)
        return text

    return read


def _notify_urls(value: object) -> tuple[str, ...]:
    """Return URLs, separated by commas or, as a file may have them, by lines."""
    read_url = _public_url("https", "http")
    urls = _list(",".join(value.splitlines()) if isinstance(value, str) else value)
    if not all(url.isprintable() and " " not in url for url in urls):
        raise ValueError("needs URLs without spaces and control characters")
    return tuple(map(read_url, urls))


def _notify_on(value: object) -> tuple[str, ...]:
    words = _list(value)
    known = ("failed", "completed", "dead_letter", "waiting")
    for word in words:
        if word not in known:
            from weft.definition.suggestion import Suggester

            raise ValueError(f"needs {', '.join(known)}, not {word!r}{Suggester().hint(word, known)}")
    if not words:
        raise ValueError(f"needs at least one of {', '.join(known)}")
    return words


def _broker_url(value: object) -> str:
    """One URL of a broker, or several separated by semicolons, as Celery reads them."""
    text = _text(value)
    for url in text.split(";"):
        if "://" in url:
            _check_authority(url.strip())
    return text


def _public_url(*schemes: str) -> Callable[[object], str]:
    """Return a reader of a URL without a user and a password: it is shown, and no call would send them."""
    read_url = _url(*schemes)

    def read(value: object) -> str:
        text = read_url(value)
        if "@" in text.partition("://")[2].partition("/")[0]:
            raise ValueError(
                "holds a user or a password, which no call sends: set the key of the service apart"
            )
        return text

    return read


def _base_url(value: object) -> str:
    """Return a URL that paths are added to."""
    url = _public_url("https", "http")(value).rstrip("/")
    if not url.isprintable() or any(mark in url for mark in " ?#<>&"):
        raise ValueError("needs a URL without a query, such as https://weft.example")
    return url


_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]{0,5})?")


def _check_authority(url: str) -> None:
    """Raise ValueError if the hosts of a URL cannot be read, with no part of it in the message.

    Where a password has one of ``/ ? #`` in it, the rest of the password stands where the path would be, and
    its beginning where the port would be: whatever reads the URL later would show it in its error.
    """
    authority, mark, rest = re.fullmatch(r"[^:]*://([^/?#]*)([/?#]?)(.*)", url, re.DOTALL).groups()  # type: ignore[union-attr]
    hosts = authority.rpartition("@")[2].split(",")
    broken = mark and "@" in rest.partition("?")[0] and "@" not in authority
    if broken or not all(_HOST_AND_PORT.fullmatch(host) for host in hosts):
        raise ValueError(
            "needs hosts and ports that can be read; in a password, a character such as / ? # or @ is "
            "written as %2F %3F %23 or %40"
        )


def _rate(value: object) -> RateLimit | None:
    if value == "off":
        return None
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"needs a rate like 60/minute, or off, not {value!r}")
    return RateLimit(int(match[1]), _RATE_UNITS[match[2]])


def _resource_limits(value: object) -> Mapping[str, ResourceLimit]:
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"needs a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ValueError('needs an object like {"tag": {"rate_per_second": 10, "burst": 1}}')
    return {tag: _resource_limit(tag, limit) for tag, limit in value.items()}


def _resource_limit(tag: str, limit: object) -> ResourceLimit:
    if not isinstance(limit, dict) or not {"rate_per_second"} <= limit.keys() <= {"rate_per_second", "burst"}:
        raise ValueError(f"{tag!r} needs rate_per_second, may have burst, and nothing else")
    rate, burst = limit["rate_per_second"], limit.get("burst", 1)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise ValueError(f"{tag!r}: rate_per_second needs a number above 0, not {rate!r}")
    if isinstance(burst, bool) or not isinstance(burst, int) or burst < 1:
        raise ValueError(f"{tag!r}: burst needs a whole number from 1 up, not {burst!r}")
    return ResourceLimit(float(rate), burst)


# --- The table.


def _setting(
    default: Any,
    read: Callable[[object], Any],
    doc: str,
    *,
    shown: str | None = None,
    secret: bool = False,
) -> Any:
    """Declare one setting. ``shown`` is its default in the docs, where the value would not say enough."""
    metadata = {"read": read, "doc": doc, "shown": shown, "secret": secret}
    if callable(default):
        return field(default_factory=default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


_count = _whole(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, checked."""

    data: Path = _setting(  # noqa: RUF009 - the default is made by a factory
        lambda: Path(".weft"), _path, "the data folder of `weft up`", shown="`.weft` in the current folder"
    )
    database_url: str | None = _setting(
        None,
        _url("postgresql", "postgres"),
        "`postgresql://…` for a fleet",
        shown="a SQLite file in the data folder",
        secret=True,
    )
    redis_url: str | None = _setting(
        None,
        _url("redis", "rediss", "redis+sentinel", "rediss+sentinel"),
        "`redis://…`, `rediss://…` with TLS, or `redis+sentinel://…` ([fleet](fleet.md#sentinels))",
        shown="unset: in-process queue and state",
        secret=True,
    )
    transport: str = _setting(
        "auto",
        _choice("auto", "celery"),
        "`auto`: in-process, or Redis Streams where `REDIS_URL` is set; `celery` with `CELERY_BROKER_URL`",
    )
    celery_broker_url: str | None = _setting(
        None, _broker_url, "the broker of `TRANSPORT=celery`", secret=True
    )
    durability: str = _setting(
        "strict",
        _durability,
        "`strict`: a result is committed and synced to the disk before anything that depends on it starts; "
        "`relaxed`: committed in the same order, but the database does not wait for its disk "
        "([what that promises](promises.md#relaxed-durability))",
    )
    orchestrator_stale_result_timeout_seconds: float = _setting(
        30.0, _duration, "a result another orchestrator took and did not finish is claimed after this time"
    )
    orchestrator_stale_claim_interval_seconds: float = _setting(
        15.0, _duration, "how often such results are looked for"
    )
    orchestrator_sweep_interval_seconds: float = _setting(
        5.0, _duration, "how often what a crash left is looked for"
    )
    trigger_grace_seconds: float = _setting(
        60.0, _duration, "a due time of a trigger that is late by no more than this always starts"
    )
    event_retention_seconds: float = _setting(
        7 * 86_400.0,
        _duration,
        "how long inbound events are kept: for so long the same event again does nothing again",
        shown="7d",
    )
    worker_heartbeat_interval_seconds: float = _setting(
        5.0, _duration, "a heartbeat renews the lease on every attempt in hand"
    )
    worker_heartbeat_timeout_seconds: float = _setting(
        15.0, _duration, "a worker this long without a heartbeat is lost, and its tasks move on"
    )
    reaper_idle_timeout_seconds: float = _setting(
        300.0, _duration, "work that no lease covers is issued again after this time"
    )
    max_deliveries: int = _setting(
        3, _count, "started attempts lost in a row; then the node is `FAILED` and a dead letter"
    )
    max_child_depth: int = _setting(
        10, _count, "executions one inside the other, each called by a node; a deeper one fails as `too_deep`"
    )
    # A service that asks for a week, by mistake or in malice, must not hold an execution for a week.
    max_retry_after_seconds: float = _setting(
        3600.0,
        _duration,
        "the longest wait that a service's `Retry-After` can ask for; a node's `retry.max_delay_seconds` "
        "where that is larger",
        shown="1 h",
    )
    worker_concurrency: int = _setting(64, _count, "tasks a worker has in hand at once")
    worker_processes: int = _setting(
        lambda: os.cpu_count() or 1, _count, "child processes for Python functions", shown="number of cores"
    )
    worker_grace_seconds: float = _setting(
        10.0, _duration_or_zero, "from “please stop” (cancel, timeout, SIGTERM) to the kill"
    )
    execution_window: int = _setting(1000, _count, "tasks of one execution in flight")
    execution_bytes: int = _setting(
        32 * 2**20,
        _count,
        "memory for the large configs (over 16 KiB) of one execution in flight on one server; the rest of "
        "its nodes wait. A fleet has no bound for one execution ([memory](operation.md#memory))",
    )
    process_bytes: int = _setting(
        64 * 2**20, _count, "the same of all executions together, in one process: a server, or a worker"
    )
    partitions: int = _setting(1, _count, "partitions of Redis")
    api_rate_limit: RateLimit | None = _setting(  # noqa: RUF009 - the default is made by a factory
        lambda: RateLimit(60, 60.0),
        _rate,
        "requests per client, in a sliding window; `off` for none; not on loopback",
        shown="60/minute",
    )
    event_rate_limit: RateLimit | None = _setting(  # noqa: RUF009 - the default is made by a factory
        lambda: RateLimit(600, 60.0),
        _rate,
        "inbound events and webhooks per client, in a sliding window; `off` for none; not on loopback",
        shown="600/minute",
    )
    api_keys: tuple[str, ...] = _setting(
        (),
        _keys,
        "the keys that the API accepts, each as `Authorization: Bearer KEY`; without one it is open to this "
        "machine alone",
        shown="none",
        secret=True,
    )
    resource_limits: Mapping[str, ResourceLimit] = _setting(
        dict,
        _resource_limits,
        'per `resource_tag`, e.g. `{"gemini_api": {"rate_per_second": 10, "burst": 1}}`',
        shown="{}",
    )
    hot_state_ttl_seconds: float = _setting(
        604800.0, _duration, "hot state of a terminal execution is let go at the latest after this time"
    )
    retention_seconds: float | None = _setting(
        None, _duration, "how long history is kept", shown="unset: kept"
    )
    http_allow: tuple[str, ...] = _setting(
        (),
        _list,
        "hosts, `host:port` or networks that `call_external_service` may also reach; `*` for all",
        shown="public addresses only",
    )
    llm_base_url: str = _setting(
        "https://api.openai.com/v1", _public_url("https", "http"), "where a node names no `base_url`"
    )
    llm_api_key: str | None = _setting(None, _text, "sent to `LLM_BASE_URL` and nowhere else", secret=True)
    llm_model: str | None = _setting(None, _text, "where a node names no `model`")
    notify: tuple[str, ...] = _setting(
        (),
        _notify_urls,
        "URLs that are told of every execution ([notifications](howto/notifications.md)); they may be on the "
        "inside",
        shown="none",
        secret=True,
    )
    notify_on: tuple[str, ...] = _setting(
        ("failed", "dead_letter"),
        _notify_on,
        "what they are told of: `failed`, `completed`, `dead_letter`, `waiting`",
        shown="`failed,dead_letter`",
    )
    notify_secret: str | None = _setting(
        None, _text, "signs every notification (`webhook-signature`)", secret=True
    )
    public_url: str | None = _setting(
        None,
        _base_url,
        "where people reach the API and its console, such as `https://weft.example`: for the links in "
        "notifications",
        shown="the address of `weft up`; of a fleet none",
    )
    imports: tuple[str, ...] = _setting(
        (), _list, "modules to load at start: they register handlers and functions", shown="empty"
    )
    python_allow: tuple[str, ...] = _setting(
        (), _list, "`module:name` or `module:*` that the handler `python` may call", shown="empty"
    )
    logs: str = _setting(
        "on",
        _choice("on", "off"),
        "`on`: what nodes print and log is kept with the attempt ([logs](howto/logging.md)); "
        "`off`: it goes to stderr alone",
    )
    max_log_bytes: int = _setting(
        256 * 2**10,
        _count,
        "what is kept of the lines of an attempt; over it the oldest lines go",
    )
    metrics_port: int | None = _setting(
        None, _whole(1, 65535), "health and metrics of orchestrators and workers"
    )
    max_body_bytes: int = _setting(32 * 2**20, _count, "a request's body, or a definition file")
    max_connections: int = _setting(
        10_000,
        _whole(16),
        "connections to the API at once; fewer where the limit on open files, less a reserve for the "
        "engine's own files, is lower ([what happens at the limit](operation.md#connections))",
    )
    max_nodes: int = _setting(100_000, _count, "nodes of a definition")
    max_edges: int = _setting(500_000, _count, "dependencies of a definition in all")
    max_depth: int = _setting(100, _count, "nesting of a definition, an input, a config, an output")
    max_template_bytes: int = _setting(64 * 2**10, _count, "one template")
    # The largest definition that the other limits allow takes four seconds.
    max_compile_cpu_seconds: float = _setting(
        20.0,
        _duration,
        "CPU of a request to read its YAML, and again to compile its definition; over it 422",
    )
    max_payload_bytes: int = _setting(16 * 2**20, _count, "an input, a resolved config, an output, each")
    max_response_bytes: int = _setting(10 * 2**20, _count, "the response to an HTTP call")
    max_batch: int = _setting(50_000, _count, "inputs of a batch")
    max_backlog: int = _setting(
        1_000_000, _count, "nodes not yet settled, of all executions; over it a submit is 503 `overloaded`"
    )

    # Not a setting: of each that was given, by its name in lower case, where its value came from ("flag",
    # "environment" or "file").
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def with_defaults(self, *names: str) -> Settings:
        """Return these settings with the defaults of the named fields."""
        kept = {name: where for name, where in self.sources.items() if _FIELDS[name].name not in names}
        return replace(self, **{name: getattr(Settings(), name) for name in names}, sources=kept)

    def secrets(self) -> list[str]:
        """Return the values of these settings that must not be shown anywhere."""
        found = [getattr(self, item.name) for item in _FIELDS.values() if item.metadata["secret"]]
        values = [value if isinstance(value, tuple) else (value,) for value in found if value]
        secrets = [value for several in values for value in several]
        return secrets + [password for secret in secrets for password in _passwords(secret)]

    def notify_targets(self) -> tuple[NotifyTarget, ...]:
        """Return whom the operator wants told of every execution."""
        from weft.definition.model import NotifyOn, NotifyTarget

        on = frozenset(map(NotifyOn, self.notify_on))
        return tuple(NotifyTarget(url, on) for url in dict.fromkeys(self.notify))

    def bounds(self) -> Bounds:
        """Return the bounds of these settings that the core needs to check a definition."""
        return Bounds(
            max_body_bytes=self.max_body_bytes,
            max_nodes=self.max_nodes,
            max_edges=self.max_edges,
            max_depth=self.max_depth,
            max_template_bytes=self.max_template_bytes,
            max_payload_bytes=self.max_payload_bytes,
            max_batch=self.max_batch,
        )


def _passwords(url: str) -> list[str]:
    """Return the password of a URL, as it is written there and decoded; drivers show it alone.

    One that is also part of the rest of the URL, such as the name of the user or of the database, is none:
    masked, it would take a word such as ``postgres`` out of every line.
    """
    from urllib.parse import parse_qs, unquote, urlsplit

    if "://" not in url:
        return []
    try:
        parts = urlsplit(url)
        written = [parts.password, *parse_qs(parts.query).get("password", ())]
    except ValueError:
        return []  # a key that looks like a URL, and is none
    found = dict.fromkeys(form for one in written if one for form in (one, unquote(one)))
    rest = f"{parts.scheme} {parts.username} {parts.hostname} {parts.path}".lower()
    return [password for password in found if password.lower() not in rest]


# Setting name in lower case -> dataclass field.
_FIELDS = {item.name.removesuffix("_seconds"): item for item in fields(Settings) if "read" in item.metadata}


def setting_names() -> list[str]:
    """List the name of every setting in lower case."""
    return list(_FIELDS)


# --- Reading them.


def read_settings(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path = Path(),
    trusts_folder: bool = True,
) -> tuple[Settings, list[str]]:
    """Read every setting, and say which names were not understood.

    ``trusts_folder``: whether the ``weft.toml`` of the folder may name code to import; if not, that is left
    out, with a warning. The environment, and a file that ``WEFT_CONFIG`` names, are the user's own words.

    ``flags`` maps a setting's name in lower case to the value a flag gave; ``None`` means not given.
    Raises ``SettingsError`` that lists every bad value at once.
    """
    environ = os.environ if environ is None else environ
    path, in_file = _read_file(environ, folder)
    untrusted = {} if trusts_folder or environ.get("WEFT_CONFIG") else _code_in(in_file)
    in_file = {name: value for name, value in in_file.items() if name not in untrusted}
    layers = [
        _Layer(
            source="flag",
            given={name: v for name, v in (flags or {}).items() if v is not None},
            label=_flag_label,
        ),
        _environment_layer(environ),
        _Layer(source="file", given=in_file, label=lambda name: f"{path}: {name}"),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: list[str] = []
    for name, item in _FIELDS.items():
        for layer in layers:
            try:
                found = layer.find(name, secret=item.metadata["secret"])
                if found is not None:
                    values[item.name] = item.metadata["read"](found)
                    sources[name] = layer.source
                    break
            except ValueError as error:
                problems.append(f"{layer.label(name)} {error}")
                break
    if problems:
        raise SettingsError("\n".join(problems))
    settings = Settings(**values, sources=sources)
    _check_together(settings)
    warnings = [warning for layer in layers[1:] for warning in layer.unknown()]
    if untrusted:
        named = "; ".join(f"{name} = {value!r}" for name, value in untrusted.items())
        warnings.append(
            f"{path} names code, which was not imported: {named[:500]}; if you trust whoever wrote the file, "
            f"{TRUST_IT}"
        )
    return settings, warnings


def _check_together(settings: Settings) -> None:
    """Raise SettingsError if values exclude each other."""
    if settings.worker_heartbeat_timeout_seconds <= settings.worker_heartbeat_interval_seconds:
        raise SettingsError(
            "WEFT_WORKER_HEARTBEAT_TIMEOUT needs to be longer than WEFT_WORKER_HEARTBEAT_INTERVAL"
        )
    if settings.transport == "celery" and "+sentinel://" in (settings.redis_url or ""):
        raise SettingsError(
            "WEFT_TRANSPORT is celery, and Celery keeps its results in the Redis of WEFT_REDIS_URL: "
            "it cannot read a URL of Sentinels, so name the server itself (redis:// or rediss://)"
        )


def _code_in(in_file: Mapping[str, object]) -> dict[str, object]:
    """Return what the file says of modules to import and functions to call."""
    return {name: in_file[name] for name in ("imports", "python_allow") if in_file.get(name)}


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the processes that run users' functions on a server.

    It has neither the settings that are secrets (the keys of the API, the addresses of Redis, PostgreSQL and
    a broker, the key of the language model) nor WEFT_SECRET_…: a function gets the secrets of its node with
    the call. Everything else stays.
    """
    secret = {f"{PREFIX}{name.upper()}" for name, item in _FIELDS.items() if item.metadata["secret"]}
    # The client's own.
    secret.add("WEFT_API_KEY")
    return {
        name: value
        for name, value in environ.items()
        if name.upper().removesuffix("_FILE") not in secret and not name.upper().startswith(SECRET_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class _Layer:
    """The values of one source, by setting name in lower case."""

    source: str
    given: Mapping[str, object]
    label: Callable[[str], str]

    def find(self, name: str, *, secret: bool) -> object | None:
        file = self.given.get(f"{name}_file") if secret else None
        value = self.given.get(name)
        if file is None:
            return value
        if value is not None:
            raise ValueError(f"and {self.label(f'{name}_file')} are both set; keep one")
        return _read_secret_file(_text(file))

    def unknown(self) -> list[str]:
        known = {*_FIELDS, *(f"{name}_file" for name, item in _FIELDS.items() if item.metadata["secret"])}
        return [self._warning(name, known) for name in self.given if name not in known]

    def _warning(self, name: str, known: set[str]) -> str:
        from weft.definition.suggestion import Suggester

        near = Suggester().nearest(name, known)
        hint = f"; did you mean {self.label(near).rpartition(': ')[2]}?" if near else ""
        return f"{self.label(name)} is not a setting of weft{hint}"


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    # A variable that is set to nothing is one that a compose file or a shell left blank.
    given = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if _is_setting_name(name) and value
    }
    return _Layer(source="environment", given=given, label=lambda name: PREFIX + name.upper())


def _flag_label(name: str) -> str:
    # `weft worker --concurrency`: in a command the role goes without saying.
    return "--" + name.removeprefix("worker_").replace("_", "-")


def _is_setting_name(name: str) -> bool:
    return name.startswith(PREFIX) and name not in _OTHER_NAMES and not name.startswith(_OTHER_PREFIXES)


def _read_file(environ: Mapping[str, str], folder: Path) -> tuple[Path, Mapping[str, object]]:
    named = environ.get("WEFT_CONFIG")
    path = Path(named).expanduser() if named else folder / "weft.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named:
            raise SettingsError(f"WEFT_CONFIG names {path}, which does not exist") from None
        return path, {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    import tomllib

    try:
        return path, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error


def _read_secret_file(path: str) -> str:
    try:
        # The newline that editors and `echo` put at the end is not part of a secret.
        return Path(path).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read from its file: {error}") from None


# A key of this many random characters cannot be guessed by trying.
_SHORTEST_KEY = 16
_READ_BY_OTHERS = 0o004


def weak_secrets(
    settings: Settings, *, environ: Mapping[str, str] | None = None, folder: Path = Path()
) -> list[str]:
    """List API keys that can be guessed, and files with secrets that every user of the machine can read."""
    environ = os.environ if environ is None else environ
    found = []
    if any(len(key) < _SHORTEST_KEY for key in settings.api_keys):
        found.append(
            f"a key in WEFT_API_KEYS has fewer than {_SHORTEST_KEY} characters and can be guessed: make one "
            "with `weft keys new`"
        )
    path, in_file = _read_file(environ, folder)
    files = {}
    for name, item in _FIELDS.items():
        if not item.metadata["secret"]:
            continue
        if name in in_file:
            files[str(path)] = str(path)
        for label, file in (
            (f"{PREFIX}{name.upper()}_FILE", environ.get(f"{PREFIX}{name.upper()}_FILE")),
            (f"{path}: {name}_file", in_file.get(f"{name}_file")),
        ):
            if isinstance(file, str) and file:
                files[file] = f"{label} ({file})"
    for file, label in files.items():
        try:
            mode = Path(file).expanduser().stat().st_mode
        except OSError:
            continue  # whoever reads it says so
        if mode & _READ_BY_OTHERS:
            found.append(f"{label} can be read by every user of this machine: chmod 600 {file}")
    return found


# --- Describing them.


_PAGE = """\
# Settings

<!-- Written by `python -m weft.settings`; a test compares. -->

In the environment a setting has the prefix `WEFT_`; in `weft.toml` (or the file that `WEFT_CONFIG` names)
it is in lower case without one. A flag goes before the environment, the environment before the file.
Durations are seconds or `500ms`, `30s`, `5m`, `2h`, `7d`; lists are separated by commas. `X_FILE` reads a
secret from a file; the secrets are SECRETS. An unknown
`WEFT_` name is a warning; a bad value stops weft with exit code 2.

`WEFT_SECRET_NAME` (or `WEFT_SECRET_NAME_FILE`) is what `{{ secrets.NAME }}` stands for in a config.

| name | default | meaning |
|---|---|---|
ROWS
"""


def settings_page() -> str:
    """Write ``docs/settings.md``: every setting, its default and its meaning."""
    rows = [
        f"| `{name.upper()}` | {_shown_default(item)} | {item.metadata['doc']} |"
        for name, item in _FIELDS.items()
    ]
    secrets = ", ".join(f"`{name.upper()}`" for name, item in _FIELDS.items() if item.metadata["secret"])
    return _PAGE.replace("SECRETS", secrets).replace("ROWS", "\n".join(rows))


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting as people are shown it: plain text, and no secret."""

    name: str
    value: str | None
    # flag, environment, file or default
    source: str
    default: str
    doc: str


def show_settings(settings: Settings) -> list[ShownSetting]:
    """List every setting with its value and where that came from, in the order of ``docs/settings.md``."""
    return [
        ShownSetting(
            name=PREFIX + name.upper(),
            value=_shown_value(name, getattr(settings, item.name)),
            source=settings.sources.get(name, "default"),
            default=_without_marks(_shown_default(item)),
            doc=_without_marks(item.metadata["doc"]),
        )
        for name, item in _FIELDS.items()
    ]


def _shown_value(name: str, value: object) -> str | None:
    if value is None or value == ():
        return None
    item = _FIELDS[name]
    if item.metadata["secret"]:
        from weft.masking import HIDDEN

        return HIDDEN
    match value:
        case tuple():
            return ", ".join(value)
        case RateLimit(requests=requests, per_seconds=seconds):
            units = {seconds: unit for unit, seconds in _RATE_UNITS.items()}
            return f"{requests}/{units[seconds]}"
        case dict():
            limits = {
                tag: {"rate_per_second": one.rate_per_second, "burst": one.burst}
                for tag, one in value.items()
            }
            return str(limits).replace("'", '"')
        case _:
            return f"{value:g} s" if item.name.endswith("_seconds") else str(value)


_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def _without_marks(text: str) -> str:
    """Return a sentence of the docs without what makes it Markdown."""
    return _LINK.sub(r"\1", text).replace("`", "")


def _shown_default(item: Field[Any]) -> str:
    default, shown = item.default, item.metadata["shown"]
    if shown is not None:
        return str(shown)
    if default is None:
        return "unset"
    if isinstance(default, float):
        return f"{default / 86400:g} days" if default % 86400 == 0 else f"{default:g} s"
    if isinstance(default, int) and default % 2**10 == 0:
        return f"{default // 2**20} MiB" if default % 2**20 == 0 else f"{default // 2**10} KiB"
    return f"{default:,}" if isinstance(default, int) else f"`{default}`"


if __name__ == "__main__":
    import sys

    sys.stdout.write(settings_page())
