"""Sends notifications: a signed POST of JSON to a URL that the operator or a workflow has named.

The headers are those of Standard Webhooks (https://www.standardwebhooks.com): ``webhook-id`` is the same in
every attempt, and ``webhook-signature`` signs it with the time of the attempt and the body. What a workflow
names is watched by the guard, as a call of ``call_external_service`` is; what the operator names by
WEFT_NOTIFY may be on the inside. No message of an error repeats a URL: its path is often the password.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from weft.core.time import MICROSECONDS, rfc3339
from weft.definition.model import SECRET_REFERENCE, NotifyOn
from weft.errors import HandlerError, SettingsError
from weft.handlers.contract import BadConfig
from weft.handlers.http.outbound import Outbound
from weft.handlers.secrets import lookup

if TYPE_CHECKING:
    import re

    from weft.clock import Clock
    from weft.core.rows import Notification
    from weft.handlers.http.session import Lookup
    from weft.settings import Settings

# Slack shows about so much of a message; the execution has the whole error.
_MAX_TEXT_CHARACTERS = 1_000
# Slack reads these three as markup: mentions and links begin with the second.
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_TYPES = {
    NotifyOn.COMPLETED: "execution.completed",
    NotifyOn.FAILED: "execution.failed",
    NotifyOn.DEAD_LETTER: "dead_letter.created",
    NotifyOn.WAITING: "node.waiting",
}
_SECRET_PREFIX = "whsec_"  # noqa: S105 - how Standard Webhooks marks one that is written in base64
_GONE = 410
_encode = msgspec.json.Encoder().encode


class Webhooks:
    """Sends notifications over connections of its own: a slow receiver takes none from a node."""

    def __init__(self, settings: Settings, clock: Clock, *, lookup: Lookup | None = None) -> None:
        """Raises SettingsError where NOTIFY_SECRET cannot be read; opens nothing before the first call."""
        self._outbound = Outbound(settings, clock, lookup=lookup, keep_alive=False)
        self._clock = clock
        self._trusted = frozenset(settings.notify)
        self._public_url = settings.public_url
        self._key = None if settings.notify_secret is None else read_key(settings.notify_secret)

    async def send(self, notification: Notification) -> None:
        """Send a notification once; raises HandlerError unless the receiver has taken it (2xx)."""
        from weft.handlers.http.exchange import post_once
        from weft.handlers.http.outgoing import make_request

        trusted = notification.url in self._trusted
        body = make_body(notification, self._public_url)
        request = make_request(
            url=notification.url if trusted else _filled(notification.url),
            method="POST",
            headers=self._headers(notification.id, body),
            idempotency_key=notification.id,
        )
        await post_once(
            replace(request, body=body), self._outbound, trusted=trusted, given_up_at=frozenset({_GONE})
        )

    async def close(self) -> None:
        await self._outbound.close()

    def _headers(self, id_: str, body: bytes) -> dict[str, Any]:
        seconds = self._clock.now() // MICROSECONDS
        headers = {
            "content-type": "application/json",
            "webhook-id": id_,
            "webhook-timestamp": str(seconds),
        }
        if self._key is not None:
            headers["webhook-signature"] = signature(self._key, id_, seconds, body)
        return headers


def read_key(secret: str) -> bytes:
    """Return the key of NOTIFY_SECRET: base64 behind ``whsec_``, else the text itself."""
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        return b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        raise SettingsError(
            "WEFT_NOTIFY_SECRET begins with whsec_, and what follows is not base64: "
            "make one with `echo whsec_$(openssl rand -base64 24)`"
        ) from None


def signature(key: bytes, id_: str, seconds: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``."""
    signed = b".".join((id_.encode(), str(seconds).encode(), body))
    return f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}"


def make_body(notification: Notification, public_url: str | None = None) -> bytes:
    """Return the JSON that is sent: ``text`` for people, which Slack shows as it is, and the facts beside it.

    It is made of the facts of the commit alone, so it is the same in every attempt. ``public_url``: where
    people reach the console; None: there are no links.
    """
    told = notification.told
    error = (
        None if told.code is None and told.message is None else {"code": told.code, "message": told.message}
    )
    link = None if public_url is None else _link(notification, public_url)
    body: dict[str, Any] = {
        "text": _text(notification, link),
        "id": notification.id,
        "type": _TYPES[notification.on],
        "timestamp": rfc3339(notification.created_at),
        "execution": {
            "id": notification.execution_id,
            "namespace": notification.namespace,
            "workflow": told.workflow,
            "version": told.version,
            "generation": notification.generation,
            "state": told.state,
        },
        "node": told.node,
        "error": error,
        "url": link,
    }
    if told.dead_letter is not None:
        body["dead_letter"] = {"id": told.dead_letter}
    if notification.on is NotifyOn.WAITING:
        expires_at = None if told.expires_at is None else rfc3339(told.expires_at)
        body["wait"] = {"signal": told.signal, "prompt": told.prompt, "expires_at": expires_at}
    return _encode(body)


def _link(notification: Notification, public_url: str) -> str:
    """Return the address of the console's page for it: the form of a question, else the execution."""
    execution = quote(notification.execution_id, safe="")
    if notification.on is NotifyOn.WAITING:
        return f"{public_url}/#/waits/{execution}/{quote(notification.told.node or '', safe='')}"
    return f"{public_url}/#/executions/{execution}"


def _text(notification: Notification, link: str | None) -> str:
    told = notification.told
    named = f"Execution {notification.execution_id}"
    if told.workflow is not None:
        named = f"{named} of workflow {told.workflow}"
    # Whoever is asked has to go there, so the link outlives a prompt that is cut.
    behind = ""
    match notification.on:
        case NotifyOn.COMPLETED:
            text = f"{named} completed"
        case NotifyOn.FAILED:
            text = f"{named} failed: {told.message}"
        case NotifyOn.DEAD_LETTER:
            text = f"{named} has a dead letter: node {told.node} failed: {told.message}"
        case NotifyOn.WAITING:
            asked = "" if told.prompt is None else f": {told.prompt}"
            text = f"{named} waits for an answer to {told.node}{asked}"
            behind = "" if link is None else f" {link}"
    if len(text) > _MAX_TEXT_CHARACTERS:
        text = f"{text[:_MAX_TEXT_CHARACTERS]}…"
    return f"{text}{behind}".translate(_ESCAPED)


def _filled(url: str) -> str:
    """Return a workflow's URL with its secrets, or raise HandlerError if this process lacks one."""
    return SECRET_REFERENCE.sub(_secret, url)


def _secret(reference: re.Match[str]) -> str:
    name = reference[1]
    try:
        return lookup(name)
    except BadConfig:
        raise HandlerError(
            f"the orchestrator has no secret {name!r} for the url of notify: set WEFT_SECRET_{name.upper()} "
            "for the orchestrators too"
        ) from None
