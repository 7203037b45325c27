"""The shapes of what a browser asks to sign in."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SignIn(BaseModel):
    """An API key, to sign in with."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"key": "kQ3xZ6vT1rNy8mHc4jBs0dLp7gWf2aEu"}]}
    )

    key: str = Field(min_length=1, max_length=1024, description="one of WEFT_API_KEYS")


class SessionState(BaseModel):
    """Who the caller is, and whether a session says so."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "keys": True,
                    "signed_in": True,
                    "csrf": "0bJ1hYk0S3m9nX2vQ5tW8zC4fR7uI6oPaLsDgEjKlMn",
                    "name": "key-3f9a1c20",
                }
            ]
        }
    )

    keys: bool = Field(description="whether the server has API keys; if not, nobody signs in")
    signed_in: bool = Field(description="whether the caller is known by the cookie of a session")
    csrf: str | None = Field(
        description="to be sent as `X-CSRF-Token` with every call that is not a `GET`, while signed in"
    )
    name: str | None = Field(description="what the history calls the caller; null: not known")
