"""Patterns of clients: what they match, and the limits on their size, memory and time."""

import resource
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from penstock.broker.coordinator.topic_patterns import (
    MAX_COMPILED_BYTES,
    MAX_PATTERN_BYTES,
    MAX_UNICODE_CLASSES,
    matcher,
)
from penstock.core.errors import ErrorCode, KafkaError

HOSTILE = [
    "(" * 16_000 + "a" + ")" * 16_000,
    "(" * 4_000 + "a" + ")" * 4_000,
    "()" * 4_000,
    "\\pL" * 64,
    "(?i)[^k]{99}" * 600,
    ".{99}" * 1_600,
    "\\W" * 4_000,
    "((a{1,30}){1,30})",
    "(a?.?){400}[ab]*a[ab]{500}",
]


def test_whole_names_match() -> None:
    matches = matcher("(orders|payments)-.*")
    assert matches("orders-eu")
    assert not matches("all-orders-eu")
    assert matcher("|".join(f"region{number}.events" for number in range(400)))("region7.events")


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("a" * (MAX_PATTERN_BYTES + 1), MAX_PATTERN_BYTES),
        ("é" * (MAX_PATTERN_BYTES // 2 + 1), MAX_PATTERN_BYTES),
        ("\\pL" * (MAX_UNICODE_CLASSES + 1), MAX_UNICODE_CLASSES),
        ("\\pL{1000}", MAX_COMPILED_BYTES),
    ],
)
def test_a_pattern_beyond_a_limit_is_refused_with_the_limit(pattern: str, limit: int) -> None:
    with pytest.raises(KafkaError, match=str(limit)) as refusal:
        matcher(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compile_all() -> None:
    """Prints the memory and the longest time of all hostile patterns; the program of the test."""
    matcher("a")
    before = peak_mib()
    longest = 0.0
    for pattern in HOSTILE:
        started = time.process_time()
        with suppress(KafkaError):
            matcher(pattern)("ab" * 124)
        longest = max(longest, time.process_time() - started)
    sys.stdout.write(f"{peak_mib() - before} {longest}")


def test_hostile_patterns_take_little_memory_and_time() -> None:
    program = f"from {__name__} import compile_all; compile_all()"
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    mib, seconds = map(float, output.split())
    assert mib < 16
    assert seconds < 0.1
