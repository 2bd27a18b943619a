"""`make demo`, as a user runs it: it reports what happens, and ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

TIMEOUT_S = 240.0
COLUMNS = 80


@contextmanager
def demo() -> Iterator[subprocess.Popen[str]]:
    """Runs the demo with its output in a pipe, and cleans up at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.pipeline_demo"],
        cwd=Path(__file__).resolve().parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_demo_runs_to_its_end() -> None:
    with demo() as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output
    assert "ERROR" not in output
    lines = output.splitlines()
    assert max(map(len, lines)) < COLUMNS, output
    assert lines[-1] == "every view was counted exactly once"
    assert "lag of the pipeline's consumer group: 0" in lines
    begin = next(number for number, line in enumerate(lines) if "LAG" in line)
    table_rows = [line for line in lines[begin + 1 :] if re.fullmatch(r"[\d, ]+", line)]
    assert table_rows, output
    sent, read, lag, *_ = table_rows[-1].replace(",", "").split()
    assert (int(sent), int(read), int(lag)) == (30_000, 30_060, 0)


def test_ctrl_c_ends_the_demo_with_one_line() -> None:
    with demo() as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "views begin to come" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, output
    assert output.splitlines()[-1] == "stopped before the end"
    assert "Traceback" not in output
    assert "ERROR" not in output
