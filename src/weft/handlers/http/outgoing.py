"""Builds a request, and checks all of it before any socket is opened.

The URL, the method and the headers were filled from templates, so each of them may hold anything. What could
end a line or a name early is refused here; aiohttp gets nothing that it would have to judge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv6Address
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_plus

import msgspec
from yarl import URL

from weft.handlers.contract import BadConfig
from weft.handlers.http.address import Address, BlockedAddress, read_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.payload import Json

IDEMPOTENCY_KEY = "Idempotency-Key"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_TAB = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# All of it may stand in a URL, and every percent sign is one of an escape: it goes out as it was written.
# A signed URL would not survive being quoted anew.
_SENDABLE = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+\Z")

# These headers frame and route the message, so a config may not set them.
_OURS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# What follows a redirect to another origin. All else may be a credential, whatever its name.
_HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "idempotency-key", "user-agent"}
)
_OF_THE_BODY = frozenset({"content-encoding", "content-language", "content-location", "content-type"})
_SHOWN_CHARACTERS = 50
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    method: str
    url: URL
    headers: dict[str, str]
    body: bytes | None = None

    @property
    def shown(self) -> str:
        """The method and the place, for messages: without the query, which may hold what is secret."""
        return f"{self.method} {self.url.with_query(None)}"

    def redirected(self, status: int, url: URL) -> OutgoingRequest:
        """Return the request that follows a redirect, by the rules of RFC 9110."""
        request = replace(self, url=url)
        if (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST"):
            request = replace(request, method="GET", body=None, headers=self._headers_without(_OF_THE_BODY))
        if same_origin(self.url, url):
            return request
        kept = {name: value for name, value in request.headers.items() if name.lower() in _HARMLESS}
        return replace(request, headers=kept)

    def _headers_without(self, names: frozenset[str]) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.lower() not in names}


def make_request(
    *,
    url: str,
    method: str | None = None,
    headers: Mapping[str, Json] | None = None,
    query: Mapping[str, Json] | None = None,
    body: Json = None,
    idempotency_key: str,
) -> OutgoingRequest:
    """Build a request, or raise BadConfig or BlockedAddress if the request must not be sent."""
    target = read_url(url)
    fields = read_headers(headers or {})
    names = {name.lower() for name in fields}
    data, media_type = _body(body)
    if media_type is not None and "content-type" not in names:
        fields["Content-Type"] = media_type
    if "accept-encoding" not in names:
        # What response.py can decode.
        fields["Accept-Encoding"] = "gzip, deflate"
    if "user-agent" not in names:
        fields["User-Agent"] = _user_agent()
    if "idempotency-key" not in names:
        fields[IDEMPOTENCY_KEY] = idempotency_key
    return OutgoingRequest(
        _method(method or ("GET" if data is None else "POST")),
        _with_query(target, query) if query else target,
        fields,
        data,
    )


def read_url(text: str) -> URL:
    """Return the URL to call, with its host in the one spelling that is checked and connected to."""
    if _CONTROL.search(text):
        raise BadConfig("the url holds a control character, such as a line end")
    try:
        url = URL(text, encoded=True) if _SENDABLE.match(text) else URL(text)
        host, port = url.raw_host, url.port
    except ValueError as error:
        raise BadConfig(f"the url cannot be read: {error}") from None
    if url.scheme not in _DEFAULT_PORTS:
        raise BlockedAddress("only urls that begin with http:// or https:// are called")
    if url.raw_user is not None or url.raw_password is not None:
        raise BlockedAddress("the url holds a user or password; send them as a header")
    if not host:
        raise BadConfig("the url names no host")
    if not port:
        raise BadConfig("the url has the port 0")
    try:
        found = read_host(host)
    except ValueError as error:
        raise BadConfig(f"the url's host cannot be used: {error}") from None
    canonical = str(found)
    if canonical != host:
        url = url.with_host(canonical)
    return url.with_fragment(None) if url.raw_fragment else url


def spelled_address(url: URL) -> Address | None:
    """Return the IP address that a URL of ``read_url`` has as its host, or None if the host is a name."""
    host = url.raw_host or ""
    if ":" in host:
        return IPv6Address(host)
    # The last label of a name is never a number.
    if host[-1:].isdigit():
        found = read_host(host)
        return None if isinstance(found, str) else found
    return None


def same_origin(one: URL, other: URL) -> bool:
    """True if two URLs have the same origin; a step from http to https of the same site counts."""
    if one.raw_host != other.raw_host:
        return False
    if (one.scheme, one.port) == (other.scheme, other.port):
        return True
    return (one.scheme, one.port, other.scheme, other.port) == ("http", 80, "https", 443)


def read_headers(headers: Mapping[str, Json]) -> dict[str, str]:
    fields = {}
    for name, value in headers.items():
        if not _TOKEN.match(name):
            raise BadConfig(f"{_shortened(name)} is not the name of a header")
        if name.lower() in _OURS:
            raise BadConfig(f"the header {name!r} is set by weft")
        text = _text(value)
        if _CONTROL_BUT_TAB.search(text) or not _is_unicode(text):
            raise BadConfig(f"the header {name!r} holds a control character, such as a line end")
        fields[name] = text.strip(" \t")
    return fields


def _method(method: str) -> str:
    if not _TOKEN.match(method):
        raise BadConfig(f"{_shortened(method)} is not a method")
    name = method.upper()
    if name == "CONNECT":
        raise BadConfig("CONNECT asks for a tunnel, which is no call")
    return name


def _body(body: Json) -> tuple[bytes | None, str | None]:
    match body:
        case None:
            return None, None
        case str():
            if not _is_unicode(body):
                raise BadConfig("the body holds half of a surrogate pair")
            return body.encode(), "text/plain; charset=utf-8"
        case _:
            return msgspec.json.encode(body), "application/json"


def _with_query(url: URL, query: Mapping[str, Json]) -> URL:
    """Lay the parameters over those of the URL; one of the same name takes its place."""
    kept = [
        part
        for part in url.raw_query_string.split("&")
        if part and unquote_plus(part.partition("=")[0]) not in query
    ]
    for name, value in query.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                try:
                    kept.append(f"{quote(name, safe='')}={quote(_text(item), safe='')}")
                except UnicodeEncodeError:
                    raise BadConfig("the query holds half of a surrogate pair") from None
    # Put in by hand: with_query would quote anew what the URL already had.
    return URL.build(
        scheme=url.scheme,
        authority=url.raw_authority,
        path=url.raw_path,
        query_string="&".join(kept),
        encoded=True,
    )


def _text(value: Json) -> str:
    """Return a value as written into a header or query: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shortened(text: str) -> str:
    """Quote a text; it says where the text was cut, so that the beginning of a secret there is masked."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _user_agent() -> str:
    from importlib.metadata import version

    return f"weft/{version('weft')}"
