"""The program of a process that checks values against schemas: ``python -m weft.validator.child SOCKET``.

It answers one question at a time. The kernel ends the process when a question takes more CPU or memory than
it may: nothing else stops the library that does the work.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from weft.core.payload import decode
from weft.definition.schema import all_faults, compile_validator, first_fault
from weft.definition.unfilled import certain_faults
from weft.validator import wire

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

    from weft.core.payload import Json
    from weft.errors import Problem

# The parent serves others meanwhile: this work comes after theirs.
_NICENESS = 10
_KEPT_SCHEMAS = 64


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (wire.MEMORY_BYTES, wire.MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, EOFError):
        wire.send(channel, wire.CheckerReady())
        while True:
            question = wire.receive(channel, wire.questions)
            signal.setitimer(signal.ITIMER_PROF, question.cpu_seconds)
            answer = _answer(question)
            signal.setitimer(signal.ITIMER_PROF, 0)
            wire.send(channel, answer)


def _answer(question: wire.CheckRequest) -> wire.Faults:
    is_masked = question.kind is wire.CheckKind.MASKED
    validator = _compiled(question.schema, is_masked)
    found = [_faults(question.kind, validator, decode(payload)) for payload in question.payloads]
    return wire.Faults([[(problem.pointer, problem.message) for problem in faults] for faults in found])


def _faults(kind: wire.CheckKind, validator: Draft202012Validator, value: Json) -> list[Problem]:
    if validator.is_valid(value):
        return []
    if kind is wire.CheckKind.VALUE:
        return all_faults(validator, value)
    return (
        certain_faults(validator, value) if kind is wire.CheckKind.UNFILLED else first_fault(validator, value)
    )


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _compiled(text: bytes, is_masked: bool) -> Draft202012Validator:
    return compile_validator(decode(text), is_masked=is_masked)


if __name__ == "__main__":
    main()
