"""A secret in every form that weft, a client or a service may write it."""

from __future__ import annotations

import html
import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from urllib.parse import quote, quote_plus


def forms(secret: str) -> dict[str, str]:
    """Return the texts by the name of their form; each of them holds the whole secret."""
    data = secret.encode()
    written = {
        "plain": secret,
        "upper": secret.upper(),
        "lower": secret.lower(),
        "json": json.dumps(secret),
        "json, unicode": json.dumps([secret], ensure_ascii=False),
        "json, slashes": json.dumps(secret).replace("/", "\\/"),
        "json, all escaped": "".join(
            f"\\u{high:02x}{low:02x}" for high, low in zip(*_utf16(secret), strict=True)
        ),
        "json in json": json.dumps(json.dumps({"key": secret})),
        "url": quote(secret, safe=""),
        "url path": quote(secret),
        "url, lower": quote(secret, safe="").lower(),
        "url, every other": "".join(
            f"%{byte:02X}" if index % 2 or byte > 127 else chr(byte) for index, byte in enumerate(data)
        ),
        "url, all escaped": "".join(f"%{byte:02x}" for byte in data),
        "form": quote_plus(secret),
        "url of json": quote(json.dumps(secret), safe=""),
        "html": html.escape(secret),
        "html, decimal": "".join(f"&#{ord(character)};" for character in secret),
        "html, hexadecimal": "".join(f"&#x{ord(character):X};" for character in secret),
        "html in json": json.dumps(html.escape(secret)),
        "repr": repr(secret),
        "ascii": ascii(secret),
        "repr of bytes": repr(data),
        "repr of repr": repr(repr(secret)),
        "base64, wrapped": encodebytes(b"x" * 50 + data + b"y" * 50).decode(),
        "base64, wrapped, json": json.dumps(encodebytes(b"x" * 50 + data).decode()),
    }
    for name, before, behind in (("", b"", b""), (" in Basic", b"user:", b""), (", third", b"ab", b"!")):
        written[f"base64{name}"] = b64encode(before + data + behind).decode()
        written[f"base64, url{name}"] = urlsafe_b64encode(before + data + behind).decode()
        written[f"base64, quoted{name}"] = quote(b64encode(before + data + behind), safe="")
    return written


def _utf16(secret: str) -> tuple[bytes, bytes]:
    units = secret.encode("utf-16-be")
    return units[::2], units[1::2]


def telling(secret: str) -> list[str]:
    """Return what must not be left of a secret anywhere: its letters in a row, and its base64."""
    letters = "".join(c if c.isalnum() and c.isascii() else " " for c in secret).split()
    inside = [b64encode(bytes(offset) + secret.encode()).decode()[offset + 1 : -4] for offset in range(3)]
    return [part for part in letters if len(part) > 3] + [part for part in inside if len(part) > 3]
