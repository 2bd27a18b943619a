"""When `penstock serve` cannot start it says why, in one line, and ends with 1 (E6)."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import KafkaError
from tests.support.broker.in_process import running_broker
from tests.support.protocol.requests import make_topic, produced

PENSTOCK = str(Path(sys.executable).with_name("penstock"))


def refused(folder: Path, *settings: str) -> str:
    """What `penstock serve` says when it cannot start: one line, and exit code 1."""
    command = [PENSTOCK, "serve", "--log-level", "error"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, cwd=folder, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("penstock: ")
    return lines[0]


def test_a_second_broker_on_the_same_folder(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        data = tmp_path / "data"
        line = refused(tmp_path, f"log.dirs={data}", "listeners=PLAINTEXT://127.0.0.1:0")
        assert str(data) in line
        assert produced(client, "t", b"a") == 0, "the first one is not disturbed"


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """E6."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(
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
def test_settings_that_will_not_do(tmp_path: Path, setting: str, words: tuple[str, ...]) -> None:
    """One clear line, with the nearest name where the name is unknown."""
    line = refused(tmp_path, setting)
    for word in words:
        assert word in line
    assert not (tmp_path / "penstock-data").exists()


def test_another_node_id_is_refused(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"node.id": "1"}):
        pass
    with pytest.raises(KafkaError, match=r"node\.id"), running_broker(tmp_path, {"node.id": "2"}):
        pass
