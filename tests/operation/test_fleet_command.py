"""``./dev fleet`` starts a fleet that runs workflows, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WEFT = Path(sys.executable).with_name("weft")


def test_a_fleet_runs_the_quickstart_and_ends_with_ctrl_c() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fleet_command", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as fleet:
        try:
            assert fleet.stdout is not None
            said = ""
            while "Ctrl-C ends them all" not in said:
                line = fleet.stdout.readline()
                assert line, f"it ended: {said}"
                said += line
            url = re.search(r"ready at (\S+):", said)
            pids = [int(pid) for pid in re.findall(r"pid (\d+)", said)]
            assert url is not None
            assert len(pids) == 5

            def weft(*arguments: str) -> str:
                done = subprocess.run(
                    [WEFT, *arguments],
                    env={**environment, "WEFT_URL": url[1]},
                    cwd=ROOT,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                return done.stdout

            weft("deploy", "examples/quickstart.yaml")
            # What a worker had in hand when it was killed would be another test's; here one is enough.
            os.kill(pids[-1], signal.SIGKILL)
            weft("start", "quickstart", "--wait")
            fleet.send_signal(signal.SIGINT)
            assert fleet.wait(60) == 0
        finally:
            fleet.kill()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
