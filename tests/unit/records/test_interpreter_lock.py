"""Compiled loops over the records of one batch let other threads run."""

import pytest

from penstock.records import _decode
from penstock.records._interpreter_lock import RECORDS_AT_ONCE

RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
"""A record of 7 bytes: without key, value and headers."""


@pytest.mark.parametrize(
    ("count", "pauses"),
    [(10, 0), (RECORDS_AT_ONCE, 0), (RECORDS_AT_ONCE + 1, 1), (RECORDS_AT_ONCE * 3, 2)],
)
def test_a_scan_of_many_records_pauses(
    count: int, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(_decode, "let_others_run", lambda: calls.append(None))
    data = RECORD * count
    assert _decode.scan_records(data, 0, len(data), count, 5) == (count <= 1, count, 5, 5)
    assert len(calls) == pauses
