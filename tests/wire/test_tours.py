"""The tours in examples/ run to their end."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "expected_output"),
    [
        ("broker_tour.py", "broker stopped with exit code 0"),
        ("log_tour.py", "records: 10 validBytes: 261 lastOffset: 4999"),
    ],
)
def test_a_tour_runs_to_its_end(name: str, expected_output: str) -> None:
    process = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    assert expected_output in process.stdout
