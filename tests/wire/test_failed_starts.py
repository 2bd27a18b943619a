"""`penstock serve` that cannot start prints the reason in one line and exits with 1 (E6)."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import KafkaError
from tests.support.broker.in_process import running_broker
from tests.support.protocol.requests import make_topic, produce_values

PENSTOCK = str(Path(sys.executable).with_name("penstock"))


def failed_start(directory: Path, *settings: str) -> str:
    """Runs `penstock serve`, which must fail; returns the line that it prints."""
    command = [PENSTOCK, "serve", "--log-level", "error"]
    for setting in settings:
        command += ["--set", setting]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=30, cwd=directory, check=False
    )
    assert process.returncode == 1, process.stderr
    assert process.stdout == ""
    lines = process.stderr.strip().splitlines()
    assert len(lines) == 1, process.stderr
    assert lines[0].startswith("penstock: ")
    return lines[0]


def test_a_second_broker_cannot_use_the_same_log_directory(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        data = tmp_path / "data"
        line = failed_start(tmp_path, f"log.dirs={data}", "listeners=PLAINTEXT://127.0.0.1:0")
        assert str(data) in line
        assert produce_values(client, "t", b"a") == 0, "the first broker is not affected"


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    """E6."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = failed_start(
            tmp_path, f"log.dirs={tmp_path / 'data'}", f"listeners=PLAINTEXT://127.0.0.1:{port}"
        )
    assert str(port) in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("num.partition=3", ("num.partition", "num.partitions")),
        ("log.dir=", ("log.dir",)),
        ("num.partitions=many", ("num.partitions", "many")),
        ("listeners=NONSENSE", ("listeners", "NONSENSE")),
        ("no-equals-sign", ("no-equals-sign",)),
    ],
)
def test_invalid_settings_are_reported(
    tmp_path: Path, setting: str, words: tuple[str, ...]
) -> None:
    """One line, with the nearest name if the name is unknown."""
    line = failed_start(tmp_path, setting)
    for word in words:
        assert word in line
    assert not (tmp_path / "penstock-data").exists()


def test_another_node_id_is_rejected(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"node.id": "1"}):
        pass
    with pytest.raises(KafkaError, match=r"node\.id"), running_broker(tmp_path, {"node.id": "2"}):
        pass
