"""A new user's first bug: found by its own line, mended and run again; in terminals, and in none."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.operation.pseudo_terminal import Terminal
from tests.operation.serving import PATIENCE_SECONDS

from weft import Client, ExecutionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Stands in for pandas where the real one, which takes seconds to be imported, would show nothing more.
STAND_IN = """\
class DataFrame:
    def __init__(self, rows):
        self._rows = rows

    def __getitem__(self, name):
        return Series([self._get(row, name) for row in self._rows])

    def _get(self, row, name):
        return row[name]


class Series(list):
    def sum(self):
        return sum(self)
"""
# The error is raised far inside of the library, by a line of the user's.
FLOW = """\
import pandas
from weft import Workflow

flow = Workflow("shop")


@flow.node(max_retries=1, retry={"base_delay_seconds": 0.1})
def total(input):
    print("reading the orders of today, which is a line that no narrow terminal holds at once")
    orders = pandas.DataFrame(input["orders"])
    return orders["prise"].sum()
"""
BUG = 'return orders["prise"].sum()'
PRINTED = "total │ reading the orders of today, which is a line that no narrow terminal holds at once"
ORDERS = '[{"price": 3}, {"price": 4}]'


class Desk:
    """A folder with a workflow, and a terminal to run commands in."""

    def __init__(self, folder: Path, columns: int | None, *, has_pandas: bool) -> None:
        self.folder = folder
        self.columns = columns
        self.write(FLOW)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        if not has_pandas:
            installed = folder / "venv" / "site-packages"
            installed.mkdir(parents=True)
            (installed / "pandas.py").write_text(STAND_IN)
            self.environment["PYTHONPATH"] = str(installed)

    def write(self, flow: str) -> None:
        (self.folder / "shop.py").write_text(flow)

    def open(self, *arguments: str) -> Terminal:
        return Terminal(
            [sys.executable, "-m", "weft", *arguments],
            columns=self.columns,
            folder=self.folder,
            environment=self.environment,
        )

    def weft(self, *arguments: str) -> tuple[int, list[str]]:
        return self.open(*arguments).ended(seconds=PATIENCE_SECONDS)

    @contextmanager
    def developing(self) -> Iterator[Terminal]:
        """Run ``weft dev`` until the block ends."""
        dev = self.open("dev", "shop.py", "--port", "0")
        try:
            ready = dev.until("http://127.0.0.1:", seconds=PATIENCE_SECONDS)
            (url,) = re.findall(r"http://127\.0\.0\.1:\d+", ready)
            self.environment["WEFT_URL"] = url
            yield dev
            dev.process.send_signal(signal.SIGINT)
            code, _ = dev.ended(seconds=PATIENCE_SECONDS)
            assert code in (0, 130)
        finally:
            dev.process.kill()
            dev.process.wait()


def found_by_its_line(lines: list[str]) -> bool:
    """True if a traceback shows the user's own line, and the file and number to go to."""
    at = f'shop.py", line {FLOW.splitlines().index(f"    {BUG}") + 1}, in total'
    return any(at in line and BUG in after for line, after in pairwise(lines))


def told_in_order(lines: list[str]) -> bool:
    """True if each attempt's line is shown, and between the two that there will be a second attempt."""
    retry = "RETRYING total 2/2: KeyError, next in "
    told = [line for line in lines if line == PRINTED or line.startswith(retry)]
    return len(told) == 3 and told[0] == told[2] == PRINTED


@pytest.mark.parametrize(("columns", "has_pandas"), [(40, True), (120, False), (None, False)])
def test_the_first_bug_is_found_mended_and_run_again(
    tmp_path: Path, columns: int | None, has_pandas: bool
) -> None:
    desk = Desk(tmp_path, columns, has_pandas=has_pandas)

    code, lines = desk.weft("run", "shop.py", "--input", f"orders={ORDERS}")
    assert code == 1
    assert found_by_its_line(lines), lines
    assert told_in_order(lines), lines
    assert any("KeyError: 'prise'" in line for line in lines)

    with desk.developing() as dev, Client(desk.environment["WEFT_URL"]) as client:
        failed = client.wait(client.start("shop", {"orders": [{"price": 3}, {"price": 4}]}).id)
        if columns:
            # On the developer's terminal too, and not only as a line of the log.
            dev.until(BUG, seconds=PATIENCE_SECONDS)
            dev.until(PRINTED, seconds=PATIENCE_SECONDS)
        with pytest.raises(ExecutionFailed, match=re.escape(BUG)):
            failed.raise_for_state()
        code, lines = desk.weft("watch", failed.id)
        assert code == 1
        assert found_by_its_line(lines), lines
        assert told_in_order(lines), lines
        assert f"  retry: weft retry {failed.id}" in lines
        code, lines = desk.weft("logs", failed.id)
        assert (code, found_by_its_line(lines)) == (0, True)

        desk.write(FLOW.replace("prise", "price"))
        dev.until("the files changed" if columns else "code.replaced", seconds=PATIENCE_SECONDS)
        code, _ = desk.weft("retry", failed.id)
        assert (code, client.wait(failed.id).output) == (0, {"total": 7})
        noted = [line.message for line in client.logs(failed.id, level="INFO")]
        assert noted == ["code changed since attempt 2"]
