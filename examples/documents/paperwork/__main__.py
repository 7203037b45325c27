"""``python -m paperwork``: sample documents, the stand-in for a model, the review queue, its API."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from paperwork import metrics, review

app = App(name="python -m paperwork", help="Beside the pipeline: samples, a model, and the review queue.")
reviews = App(name="review", help="The review queue.")
app.command(reviews)

By = Annotated[str, Parameter(help="who decides")]
Note = Annotated[str, Parameter(help="why")]


@app.command
def samples(folder: Path = Path("inbox"), /, *, count: int = 12, scans: int | None = None) -> int:
    """Write sample documents into a folder, and documents.jsonl for `weft batch` beside it."""
    from paperwork.samples import write

    names = write(folder, count, scans=scans)
    print(f"{len(names):,} documents in {folder}; {folder.parent / 'documents.jsonl'} lists them")
    return 0


@app.command
def model(*, host: str = "127.0.0.1", port: int = 8701, seconds: float = 0.0) -> int:
    """Serve a stand-in for a language model until Ctrl-C; each call takes so many seconds."""
    from paperwork.model import make
    from weft.testing.standalone import serve

    serve(
        lambda host, port: make(delay_seconds=seconds, host=host, port=port),
        ["--host", host, "--port", str(port)],
        description="",
        path="/v1",
    )
    return 0


@app.command
def api(*, port: int = 8710) -> int:
    """Serve the review queue, the metrics and the service level on this machine."""
    import uvicorn

    uvicorn.run("paperwork.api:app", host="127.0.0.1", port=port, log_level="warning")
    return 0


@app.command
def sla(*, hours: float = 24.0) -> int:
    """Print whether the service level was kept; the exit code is 1 where it was not."""
    level = metrics.check_sla(hours=hours)
    print(
        f"{level.share:.1%} of {level.documents:,} documents within {level.seconds:g} s;"
        f" {level.wanted_share:.1%} are wanted: {'kept' if level.is_kept else 'missed'}"
    )
    return 0 if level.is_kept else 1


@reviews.command(name="list")
def list_(
    *, state: Literal["open", "approved", "corrected", "rejected", "all"] = "open", limit: int = 50
) -> int:
    """List items, those that wait longest first."""
    for item in review.listed(state=None if state == "all" else state, limit=limit):
        print(
            f"{item.id:>5}  {item.state:<9}  {item.record['confidence']:.2f}  {item.document}  {item.reason}"
        )
    return 0


@reviews.command
def show(item: int, /) -> int:
    """Show an item with its fields and its history."""
    _print(review.show(item))
    return 0


@reviews.command
def approve(item: int, /, *, by: By, note: Note = "") -> int:
    """Approve all fields."""
    _print(review.approve(item, by=by, note=note))
    return 0


@reviews.command
def correct(
    item: int, /, *pairs: Annotated[str, Parameter(help="FIELD=VALUE")], by: By, note: Note = ""
) -> int:
    """Correct fields, FIELD=VALUE each; they are locked from then on. FIELD= means that there is no value."""
    values = {name: value or None for name, _, value in (pair.partition("=") for pair in pairs)}
    _print(review.correct(item, values, by=by, note=note))
    return 0


@reviews.command
def reject(item: int, /, *, by: By, note: Note = "") -> int:
    """Reject the whole document: nothing of it can be used."""
    _print(review.reject(item, by=by, note=note))
    return 0


def _print(item: review.Item) -> None:
    print(f"review {item.id}: {item.document}, {item.state} ({item.reason})")
    for name, field in item.record["fields"].items():
        value = "-" if field["value"] is None else field["value"]
        print(f"  {name:<9} {field['confidence']:.2f}  {value}{'  locked' if field['locked'] else ''}")
    for noted in item.history:
        changes = noted["details"].get("fields", {})
        words = [f"{name}: {change['from']} -> {change['to']}" for name, change in changes.items()]
        words += [noted["details"][key] for key in ("reason", "note") if noted["details"].get(key)]
        print(f"  {noted['at']}  {noted['by']}  {noted['action']}  {', '.join(words)}".rstrip())


def main(arguments: list[str] | None = None) -> int:
    try:
        code = app(arguments, result_action="return_value")
    except (review.ReviewError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
