"""A run as a table: when, who, which step, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Line(NamedTuple):
    seconds: float
    actor: str
    step: str
    detail: str

    def __str__(self) -> str:
        return f"{self.seconds:9.4f}  {self.actor:<15} {self.step:<24} {self.detail}".rstrip()


def table(lines: Sequence[Line], *, last: int | None = None) -> str:
    """Draw the lines, or the last of them."""
    shown = lines if last is None else lines[-last:]
    head = Line(0.0, "actor", "step", "what came of it")
    title = f"{'seconds':>9}{str(head)[9:]}"
    left_out = [f"… {len(lines) - len(shown)} steps before these"] if len(shown) < len(lines) else []
    return "\n".join([title, "-" * 100, *left_out, *map(str, shown)])


def describe(step: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> str:
    """Return in a line what a call was about and what it answered."""
    match step:
        case "journal.record":
            return "; ".join(
                f"{type(recorded.event).__name__} {_subject(recorded.event)} {recorded.verdict}"
                + (f" -> {recorded.execution.state}" if recorded.execution is not None else "")
                for recorded in result
            )
        case "journal.submit":
            return ", ".join(f"{row.id} ({row.total} nodes)" for row in result)
        case "journal.rebuild":
            return f"{args[0]} epoch {'refused' if result is None else result.execution.epoch}"
        case "store.install":
            return "; ".join(
                f"{one.execution.id} epoch {one.execution.epoch} fresh={kwargs['fresh']}: {answer}"
                for one, answer in zip(args[0], result, strict=True)
            )
        case "store.apply" | "store.free":
            return "; ".join(f"{a.answer}, free: {' '.join(n.node_id for n in a.free)}" for a in result)
        case "store.queue":
            return "; ".join(
                f"{_subject(task)} {answer}" for task, answer in zip(args[0], result, strict=True)
            )
        case "store.start":
            return "; ".join(
                f"{_subject(request)} {start.answer}" for request, start in zip(args[0], result, strict=True)
            )
        case "store.report":
            return "; ".join(f"{_subject(each)} {_ending(each)}" for each in args[0])
        case "store.renew":
            return "; ".join(
                f"{_subject(held)} {answer}" for held, answer in zip(args[0], result, strict=True)
            )
        case "store.due":
            expired = " ".join(f"{_subject(each)}" for each in result.expired)
            woken = " ".join(name for name, _ in result.woken)
            return f"expired: {expired or '-'}, woken: {woken or '-'}"
        case "transport.fetch":
            return " ".join(_subject(delivery.task) for delivery in result)
        case "transport.read":
            return " ".join(f"{type(d.message).__name__} {_subject(d.message)}" for d in result)
        case "transport.claim":
            return f"{len(result[0])} messages, {len(result[1])} tasks"
        case _:
            return " ".join(_short(value) for value in (*args, *kwargs.values(), result))[:80]


def _subject(thing: Any) -> str:
    """Name an attempt as execution/node#attempt."""
    node_id = getattr(thing, "node_id", None)
    name = str(thing.execution_id).lstrip("0")
    attempt = getattr(thing, "attempt", None)
    if node_id is None:
        return name
    return f"{name}/{node_id}" if attempt is None else f"{name}/{node_id}#{attempt}"


def _ending(result: Any) -> str:
    if result.lost:
        return "lost"
    return "completed" if result.error is None else str(result.error["code"])


def _short(value: Any) -> str:
    return str(value) if isinstance(value, str | int | bool) else ""
