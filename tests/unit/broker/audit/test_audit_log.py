"""The audit log: rotation, repetitions, a full queue and a disk that fails (X3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.audit import audit_log
from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.audit.events import Denial, to_time
from penstock.broker.audit.repeats import MAX_PER_CLIENT, WINDOW_MS, RepeatLimiter
from penstock.broker.audit.rotating_file import RotatingFile
from tests.support.clock import ManualClock


def denial(resource: str, principal: str = "User:ann") -> Denial:
    return Denial(
        time=to_time(0),
        broker_id=1,
        principal=principal,
        address="10.0.0.1",
        listener="SSL",
        result="DENIED",
        api="FETCH",
        operation="READ",
        resource_type="TOPIC",
        resource=resource,
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_files_are_rotated_and_the_oldest_deleted(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "audit.jsonl", max_bytes=4, max_files=3)
    for number in range(5):
        file.append(b"%d...\n" % number)
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert (tmp_path / "audit.jsonl").read_bytes() == b"4...\n"
    assert (tmp_path / "audit.jsonl.2").read_bytes() == b"2...\n"
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_torn_line_is_ended(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_bytes(b'{"event":')
    file = RotatingFile(tmp_path / "audit.jsonl", 100, 1)
    file.append(b"{}\n")
    file.close()
    assert (tmp_path / "audit.jsonl").read_bytes() == b'{"event":\n{}\n'


def test_repetitions_are_counted() -> None:
    limiter = RepeatLimiter()
    assert [limiter.admit(denial("orders"), 0) for _ in range(5)] == [True, *[False] * 4]
    assert limiter.admit(denial("orders", "User:bob"), 0)
    assert not limiter.is_over(WINDOW_MS - 1)
    assert limiter.is_over(WINDOW_MS)
    (summary,) = limiter.end_window(WINDOW_MS)
    assert (summary.principal, summary.count) == ("User:ann", 4)
    assert limiter.admit(denial("orders"), WINDOW_MS)


def test_different_denials_of_one_client_are_limited() -> None:
    limiter = RepeatLimiter()
    admitted = [limiter.admit(denial(str(number)), 0) for number in range(MAX_PER_CLIENT + 7)]
    assert sum(admitted) == MAX_PER_CLIENT
    assert limiter.admit(denial("0", "User:bob"), 0)
    (summary,) = limiter.end_window(WINDOW_MS)
    assert (type(summary).__name__, summary.count) == ("Suppressed", 7)


def test_a_full_queue_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_QUEUED", 2)
    path = tmp_path / "audit.jsonl"
    log = AuditLog(RotatingFile(path, 1000, 1), 1, ManualClock())
    for number in range(5):
        log.handshake_failed(f"10.0.0.{number}", "SSL", "no certificate")
    assert log.dropped == 3
    log.start()
    log.close()
    *logins, dropped = read_lines(path)
    assert [login["address"] for login in logins] == ["10.0.0.0", "10.0.0.1"]
    assert (dropped["event"], dropped["count"]) == ("dropped", 3)


def test_a_failing_disk_is_reported_once_and_the_losses_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    file = RotatingFile(path, 1000, 1)
    log = AuditLog(file, 1, ManualClock())
    append = file.append

    def fail(lines: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "append", fail)
    for number in range(2):
        log.handshake_failed(f"10.0.0.{number}", "SSL", "no certificate")
        event = log._queue.get()
        assert event is not None
        log._write([event], is_last=False)
    assert log.failed == 3  # two events, and the line about the first loss
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "the broker continues" in errors[0].getMessage()
    monkeypatch.setattr(file, "append", append)
    log._write([], is_last=False)
    (dropped,) = read_lines(path)
    assert dropped["reason"] == "the file was not writable"
    file.close()
