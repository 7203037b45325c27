"""Carry a call out: over one session, again where the answer was lost, with errors as exceptions."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.errors import ApiError, Problem, SettingsError, UnreachableError
from weft.tracing.context import SpanContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

    from weft.sdk.calls import ApiCall

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8700"
TIMEOUT_SECONDS = 30.0
RETRY_SECONDS = 30.0
CONNECT_SECONDS = 10.0
# A stream has a comment every 15 s: this long without one, and its server is gone.
SILENCE_SECONDS = 45.0
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0

# The server says that it could not now: the same call may succeed later. The last two are a proxy's words.
_LATER = frozenset({429, 503, 502, 504})
_MAX_SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


def _trace_header() -> Mapping[str, str]:
    """Return the header of the caller's current span, where the caller's program uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    context = SpanContext(f"{span.trace_id:032x}", f"{span.span_id:016x}", int(span.trace_flags))
    return {"traceparent": context.traceparent}


class HttpConnection:
    """One server as one caller sees it.

    ``waits``: whether a server that cannot be reached is waited for also where it has never answered.
    Somebody at a terminal would rather hear at once that nobody is there.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        waits: bool = True,
    ) -> None:
        self.url = _checked_url(url or os.environ.get("WEFT_URL") or DEFAULT_URL)
        self._key = _checked_key(api_key or _key_of_environment())
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._waits = waits
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def patience(self) -> Patience:
        return Patience(self._retry_seconds)

    async def ask(self, call: ApiCall[T]) -> T:
        """Send a call and read its answer."""
        return read(await self.send(call), call.shape)

    async def send(self, call: ApiCall[Any]) -> HttpReply:
        """Send a call until there is an answer, at most for ``retry_seconds`` and one call more.

        Raises ApiError where the answer is an error, and UnreachableError where there is none.
        """
        patience = self.patience()
        while True:
            error: ApiError | UnreachableError
            try:
                async with self._open(call) as response:
                    answer = HttpReply(response.status, response.headers, await response.read())
            except UnreachableError as unreachable:
                error = unreachable
            else:
                if answer.status < 300 or answer.status == call.also:
                    return answer
                error = _problem(answer)
            if not self.may_pass(error):
                raise error
            await patience.wait(error)

    def may_pass(self, error: ApiError | UnreachableError) -> bool:
        """True if the same call may succeed after a while."""
        return error.status in _LATER if isinstance(error, ApiError) else self._waits

    @asynccontextmanager
    async def stream(
        self, call: ApiCall[Any], *, last_id: int | None
    ) -> AsyncIterator[ClientResponse | None]:
        """Open a stream of server-sent events behind the event ``last_id``; None: there are no more."""
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = str(last_id)
        async with self._open(call, headers=headers, streams=True) as response:
            if response.status >= 300:
                raise _problem(HttpReply(response.status, response.headers, await response.read()))
            yield None if response.status == 204 else response

    @asynccontextmanager
    async def _open(
        self, call: ApiCall[Any], *, headers: Mapping[str, str] | None = None, streams: bool = False
    ) -> AsyncIterator[ClientResponse]:
        """Send a call once; every way in which no whole answer arrives is an UnreachableError."""
        # Loaded late, for it takes longer than everything else that a small script needs.
        from aiohttp import ClientError, ClientPayloadError, ClientTimeout, ServerDisconnectedError

        timeout = ClientTimeout(
            total=None if streams else self._timeout_seconds + call.wait_seconds,
            sock_connect=CONNECT_SECONDS,
            sock_read=SILENCE_SECONDS if streams else None,
        )
        given = {**_trace_header(), **(headers or {})}
        if call.body is not None:
            given["Content-Type"] = call.media
        if call.key is not None:
            given["Idempotency-Key"] = call.key
        try:
            async with self._opened_session().request(
                call.method,
                self._address(call),
                data=call.body,
                headers=given,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                self._waits = True  # it is there: if it goes away now, it will be back
                yield response
        except (ClientError, TimeoutError) as error:
            if isinstance(error, (ClientPayloadError, ServerDisconnectedError)):
                self._waits = True  # it was there
            raise UnreachableError(
                f"no answer from {self.url}: {_reason(error)}; is `weft up` running, and WEFT_URL right?"
            ) from error

    def _opened_session(self) -> ClientSession:
        from aiohttp import ClientSession, DummyCookieJar

        loop = asyncio.get_running_loop()
        # A session lives on the loop it was made on; the next `asyncio.run` has another, and a fork too.
        if self._session is None or self._loop is not loop:
            self._loop = loop
            headers = {"Accept": "application/json"}
            if self._key is not None:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = ClientSession(headers=headers, cookie_jar=DummyCookieJar())
        return self._session

    def _address(self, call: ApiCall[Any]) -> URL:
        from urllib.parse import urlencode

        from yarl import URL

        query = f"?{urlencode(call.query)}" if call.query else ""
        return URL(self.url + call.path + query, encoded=True)


class Patience:
    """The time budget of retries, spent in growing waits."""

    __slots__ = ("_delay", "_ends", "_loop", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin again: it went well meanwhile."""
        self._ends = self._loop.time() + self._seconds
        self._delay = FIRST_DELAY_SECONDS

    async def wait(self, error: ApiError | UnreachableError) -> None:
        """Wait before the next try, as long as the server asked for; raise the error where time is up."""
        # Clients that lost the same server must not all come back in the same moment.
        seconds = self._delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        if isinstance(error, ApiError) and error.retry_after_seconds is not None:
            seconds = max(seconds, error.retry_after_seconds)
        if self._loop.time() + seconds > self._ends:
            raise error
        await asyncio.sleep(seconds)
        self._delay = min(self._delay * 2, LONGEST_DELAY_SECONDS)


def read(answer: HttpReply, shape: type[T]) -> T:
    """Read an answer in its shape; a server that says something else is no weft, or one too old or new."""
    if shape is type(None):
        return None
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except msgspec.DecodeError as error:
        raise _unexpected(answer, str(error)) from error


class _ProblemDocument(msgspec.Struct):
    code: str
    detail: str = ""
    title: str = ""
    trace_id: str | None = None
    problems: list[Problem] = []


def _problem(answer: HttpReply) -> ApiError:
    try:
        document = msgspec.json.decode(answer.body, type=_ProblemDocument)
    except msgspec.DecodeError:
        return _unexpected(answer, f"status {answer.status}")
    lines = [document.detail or document.title or document.code]
    # A problem that is alone is told by the detail already.
    lines += [
        f"  {problem}" for problem in document.problems[:_MAX_SHOWN_PROBLEMS] if str(problem) not in lines[0]
    ]
    if (more := len(document.problems) - _MAX_SHOWN_PROBLEMS) > 0:
        lines.append(f"  … and {more} more")
    if answer.status >= 500 and document.trace_id:
        lines.append(f"  trace id: {document.trace_id}")
    return ApiError(
        "\n".join(lines),
        status=answer.status,
        code=document.code,
        problems=document.problems,
        retry_after_seconds=_retry_after(answer),
        trace_id=document.trace_id,
    )


def _unexpected(answer: HttpReply, what: str) -> ApiError:
    where = f", to {place}" if (place := answer.headers.get("Location")) and answer.status < 400 else ""
    return ApiError(
        f"the answer is not one of a weft server ({what}{where}); check the URL",
        status=answer.status,
        code="bad_answer",
        retry_after_seconds=_retry_after(answer),
    )


def _retry_after(answer: HttpReply) -> float | None:
    text = answer.headers.get("Retry-After")
    if text is None:
        return None
    try:
        if text.strip().isdecimal():
            return float(text)
        return max(0.0, parsedate_to_datetime(text).timestamp() - RealClock().now() / MICROSECONDS)
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    # What the operating system said is clearer than what was made of it. (A name that is not found has a
    # number below 0.)
    cause = getattr(error, "os_error", None)
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    return str(error) or type(error).__name__


def _checked_url(text: str) -> str:
    from urllib.parse import urlsplit

    url = text.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if "@" in text:
        # Not shown: a password stands before the @. The API takes keys alone.
        raise SettingsError("a server's URL has no user and no password: send a key (WEFT_API_KEY)")
    if not sound or parts.query or parts.fragment:
        raise SettingsError(f"a server's URL is needed, like {DEFAULT_URL}, not {text!r}")
    return url


def _key_of_environment() -> str | None:
    key, file = os.environ.get("WEFT_API_KEY"), os.environ.get("WEFT_API_KEY_FILE")
    if key and file:
        raise SettingsError("WEFT_API_KEY and WEFT_API_KEY_FILE are both set; keep one")
    if not file:
        return key or None
    try:
        # The newline that editors and `echo` put at the end is not part of the key.
        return Path(file).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"WEFT_API_KEY_FILE cannot be read: {error}") from error


def _checked_key(key: str | None) -> str | None:
    if key is not None and not (key and key.isascii() and key.isprintable()):
        # The key itself is not shown: this message ends in logs.
        raise SettingsError("an API key is printable ASCII text without line breaks")
    return key
