"""``python -m paperwork``: sample documents, the stand-in for a model, the metrics and the service level."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclopts import App

from paperwork import metrics

app = App(name="python -m paperwork", help="Beside the pipeline: samples, a model, and the metrics.")


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
    """Serve the metrics and the service level on this machine."""
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


def main(arguments: list[str] | None = None) -> int:
    try:
        code = app(arguments, result_action="return_value")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
