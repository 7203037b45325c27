"""Certificates for tests of TLS, each of which vouches for itself."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def make_certificates(folder: Path) -> None:
    """Write certificates of a server at localhost, of a client and of a stranger, with their keys."""
    openssl = shutil.which("openssl")
    assert openssl, "openssl makes the certificates of these tests"
    for file, name in (("server", "localhost"), ("client", "weft"), ("stranger", "stranger")):
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        words += f" -subj /CN={name} -addext subjectAltName=DNS:{name}"
        subprocess.run(
            [openssl, *words.split(), "-keyout", folder / f"{file}.key", "-out", folder / f"{file}.pem"],
            check=True,
            capture_output=True,
        )


def server_context(folder: Path, *, clients: str | None = None) -> ssl.SSLContext:
    """Return what the server speaks; ``clients``: the certificate that it demands of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / f"{clients}.pem")
    return context
