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


def start_on_mount(directory: Path, options: str) -> str:
    """Runs `penstock serve` on a small file system of its own; returns the line that it prints."""
    directory.mkdir()
    serve = (
        f"mount -t tmpfs -o {options} tmpfs {directory} && exec {PENSTOCK} serve "
        f"--log-level error --set log.dirs={directory}/data --set listeners=PLAINTEXT://127.0.0.1:0"
    )
    process = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", serve],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert process.returncode == 1, process.stderr
    (line,) = process.stderr.strip().splitlines()
    assert line.startswith("penstock: ")
    return line


def test_a_read_only_log_directory_is_reported(tmp_path: Path) -> None:
    line = start_on_mount(tmp_path / "disk", "ro")
    assert str(tmp_path) in line
    assert "Read-only file system" in line
    assert "log.dirs" in line


@pytest.mark.parametrize("options", ["size=4k", "size=16k", "nr_inodes=4"])
def test_a_full_disk_at_start_is_reported(tmp_path: Path, options: str) -> None:
    line = start_on_mount(tmp_path / "disk", options)
    assert str(tmp_path) in line
    assert "free some space" in line or "free space" in line


def test_data_directories_are_private_to_their_owner(tmp_path: Path) -> None:
    """X5: records and credentials are not for other users of the machine."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        produce_values(client, "t", b"a")
        paths = [path for path in (tmp_path / "data").rglob("*") if path.exists()]
        assert any(path.suffix == ".log" for path in paths)
        assert any(path.suffix == ".db" for path in paths)
        for path in [tmp_path / "data", *paths]:
            assert path.stat().st_mode & 0o077 == 0, path


HANGING_DISK = """
import sys, threading
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.main import run_broker
from penstock.broker.replica import log_dir_probe
from penstock.storage.disk import OsDisk

log_dir_probe.PROBE_S = 0.2
OsDisk.sync_directory = lambda disk, path: threading.Event().wait()
settings = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
run_broker(BrokerConfig.from_properties(settings), print)
"""


def test_a_disk_that_hangs_is_reported(tmp_path: Path) -> None:
    """The process ends although a thread waits for the disk."""
    process = subprocess.run(
        [sys.executable, "-c", HANGING_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    lines = [line for line in process.stderr.splitlines() if "cannot start" in line]
    assert len(lines) == 1, process.stderr
    assert f"the disk of {tmp_path} has not responded" in lines[0]
    assert "Traceback" not in process.stderr
