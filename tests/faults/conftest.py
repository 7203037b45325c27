"""The servers of the API's tests, for the cases of the fault catalogue."""

from __future__ import annotations

from tests.api.conftest import registry, serve, server, stage

__all__ = ["registry", "serve", "server", "stage"]
