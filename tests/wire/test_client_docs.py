"""`docs/client.md` shows what works: its examples are run one after the other."""

import re
from pathlib import Path

import pytest

from tests.support.broker.in_process import running_broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"


def test_every_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 8
    names: dict[str, object] = {}
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with running_broker(tmp_path, settings) as broker:
        for block in blocks:
            exec(block.replace("localhost:9092", broker.bootstrap_servers), names)  # noqa: S102
    output = capsys.readouterr().out
    assert "linger_ms = 5" in output
    assert "orders-of-last-year UNKNOWN_TOPIC_OR_PARTITION" in output
    assert "10000 stored" in output
    assert "record-send-total 1.0" in output
