"""The tours of examples/ do what they say, to their end."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broker_tour.py", "broker stopped with exit code 0"),
        ("log_tour.py", "records: 10 validBytes: 261 lastOffset: 4999"),
    ],
)
def test_a_tour(name: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
