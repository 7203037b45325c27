"""A receiver of notifications that checks them as its owner would, by the rules of Standard Webhooks."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from weft.testing.http_server import Answer, Behaviour, HttpServer, ReceivedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "a-key-that-both-sides-know"


class Receiver(HttpServer):
    """Answers with the statuses it is given, one after the other, and 204 from then on."""

    def __init__(self, *statuses: int, answer: Callable[[ReceivedRequest], Behaviour] | None = None) -> None:
        self.received: list[ReceivedRequest] = []
        self._statuses = list(statuses)
        self._answer = answer
        super().__init__(self._take)

    def _take(self, request: ReceivedRequest) -> Behaviour:
        self.received.append(request)
        if self._answer is not None:
            return self._answer(request)
        return Answer(self._statuses.pop(0) if self._statuses else 204)

    @property
    def hook(self) -> str:
        return f"{self.url}/hooks/T0/B0"

    def bodies(self) -> list[dict[str, Any]]:
        return [request.json() for request in self.received]

    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.received]


def is_signed(request: ReceivedRequest, key: str = KEY) -> bool:
    """True if the signature is that of the key, computed here from the bytes that came."""
    headers = request.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    digest = hmac.new(key.encode(), signed, hashlib.sha256).digest()
    return headers["webhook-signature"] == f"v1,{b64encode(digest).decode()}"
