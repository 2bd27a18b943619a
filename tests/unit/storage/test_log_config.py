"""The settings of a log: Kafka's names, defaults and limits (S3, S4, P7)."""

from dataclasses import fields

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.storage.log_config import INT_MAX, LONG_MAX, SETTINGS, LogConfig

HOUR = 60 * 60 * 1000


def refusal(name: str, value: str) -> str:
    with pytest.raises(KafkaError) as refused:
        LogConfig().with_overrides({name: value})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message.startswith(f"{name}: ")
    return refused.value.message


def test_defaults_are_kafkas() -> None:
    """S3, S4: a log without settings behaves as Kafka's does."""
    config = LogConfig()
    assert {name: getattr(config, name.replace(".", "_")) for name in SETTINGS} == {
        "segment.bytes": 1024 * 1024 * 1024,
        "segment.ms": 168 * HOUR,
        "segment.jitter.ms": 0,
        "segment.index.bytes": 10 * 1024 * 1024,
        "index.interval.bytes": 4096,
        "preallocate": False,
        "flush.messages": LONG_MAX,
        "flush.ms": LONG_MAX,
        "cleanup.policy": frozenset({"delete"}),
        "retention.ms": 168 * HOUR,
        "retention.bytes": -1,
        "file.delete.delay.ms": 60_000,
        "min.cleanable.dirty.ratio": 0.5,
        "min.compaction.lag.ms": 0,
        "max.compaction.lag.ms": LONG_MAX,
        "delete.retention.ms": 24 * HOUR,
        "max.message.bytes": 1_048_588,
        "compression.type": "producer",
        "compression.gzip.level": -1,
        "compression.lz4.level": 9,
        "compression.zstd.level": 3,
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": LONG_MAX,
        "message.timestamp.after.max.ms": HOUR,
    }


def test_every_setting_is_a_field() -> None:
    of_the_broker = {"max_decompressed_bytes"}
    assert sorted(name.replace(".", "_") for name in SETTINGS) == sorted(
        {field.name for field in fields(LogConfig) if field.init} - of_the_broker
    )


def test_overrides_change_only_their_settings() -> None:
    """S4: global and per topic; the config of another topic stays as it was."""
    broker = LogConfig(segment_bytes=2 * 1024 * 1024)
    topic = broker.with_overrides(
        {
            "retention.ms": " 1000 ",
            "cleanup.policy": "compact, delete",
            "preallocate": "TRUE",
            "min.cleanable.dirty.ratio": "0.25",
            "compression.type": "zstd",
        }
    )
    assert (topic.retention_ms, topic.preallocate) == (1000, True)
    assert (topic.min_cleanable_dirty_ratio, topic.compression_type) == (0.25, "zstd")
    assert topic.segment_bytes == 2 * 1024 * 1024
    assert broker == LogConfig(segment_bytes=2 * 1024 * 1024)


@pytest.mark.parametrize(
    ("text", "compact", "delete"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("delete ,compact", True, True),
        ("", False, False),
    ],
)
def test_cleanup_policy(text: str, compact: bool, delete: bool) -> None:
    config = LogConfig().with_overrides({"cleanup.policy": text})
    assert (config.compact, config.delete) == (compact, delete)


def test_unknown_cleanup_policy() -> None:
    assert "delete, compact or both" in refusal("cleanup.policy", "delete,purge")


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("segment.bytes", 1024 * 1024, INT_MAX),
        ("segment.ms", 1, LONG_MAX),
        ("segment.jitter.ms", 0, LONG_MAX),
        ("index.interval.bytes", 0, INT_MAX),
        ("flush.messages", 1, LONG_MAX),
        ("flush.ms", 0, LONG_MAX),
        ("retention.ms", -1, LONG_MAX),
        ("retention.bytes", -1, LONG_MAX),
        ("file.delete.delay.ms", 0, LONG_MAX),
        ("min.compaction.lag.ms", 0, LONG_MAX),
        ("max.compaction.lag.ms", 1, LONG_MAX),
        ("delete.retention.ms", 0, LONG_MAX),
        ("max.message.bytes", 0, INT_MAX),
        ("compression.lz4.level", 1, 17),
        ("compression.zstd.level", -131072, 22),
        ("message.timestamp.before.max.ms", 0, LONG_MAX),
        ("message.timestamp.after.max.ms", 0, LONG_MAX),
    ],
)
def test_limits_of_numbers(name: str, low: int, high: int) -> None:
    for value in (low, high):
        config = LogConfig().with_overrides({name: str(value)})
        assert getattr(config, name.replace(".", "_")) == value
    for value in (low - 1, high + 1):
        assert f"between {low} and {high}" in refusal(name, str(value))


def test_an_index_has_room_for_an_entry_and_the_last_timestamp() -> None:
    """A time index keeps its last slot for the roll: with less than two it would roll for ever."""
    assert LogConfig().with_overrides({"segment.index.bytes": "24"}).segment_index_bytes == 24
    assert "between 24 and" in refusal("segment.index.bytes", "23")


def test_gzip_levels_are_those_of_kafka() -> None:
    for level in (-1, 1, 9):
        config = LogConfig().with_overrides({"compression.gzip.level": str(level)})
        assert config.compression_gzip_level == level
    for level in (-2, 0, 10):
        assert "-1" in refusal("compression.gzip.level", str(level))


@pytest.mark.parametrize("text", ["", "ten", "1.5", "0x10", "1_000", "१"])
def test_a_number_is_written_with_digits_only(text: str) -> None:
    assert "will not do" in refusal("retention.ms", text)


@pytest.mark.parametrize("text", ["-0.1", "1.1", "nan", "half"])
def test_a_ratio_is_between_0_and_1(text: str) -> None:
    assert "will not do" in refusal("min.cleanable.dirty.ratio", text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("preallocate", "yes"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
    ],
)
def test_names_that_are_none(name: str, text: str) -> None:
    assert repr(text) in refusal(name, text)


def test_an_unknown_setting_names_the_nearest() -> None:
    assert "did you mean retention.ms?" in refusal("retenton.ms", "1")
    assert refusal("colour", "red").endswith("no such topic setting")


def test_compaction_lags_may_not_cross() -> None:
    """S5: a record cannot have to wait longer than it may."""
    config = LogConfig().with_overrides({"max.compaction.lag.ms": "1000"})
    assert config.with_overrides({"min.compaction.lag.ms": "1000"}).min_compaction_lag_ms == 1000
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms") as refused:
        config.with_overrides({"min.compaction.lag.ms": "1001"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("policy", "lag", "expected"),
    [("delete", 50, 100), ("compact", 50, 50), ("compact", 200, 100), ("compact,delete", 99, 99)],
)
def test_a_compacted_log_rolls_in_time_for_its_lag(policy: str, lag: int, expected: int) -> None:
    """S3, S5: only segments that are not active are compacted."""
    config = LogConfig(
        segment_ms=100,
        cleanup_policy=frozenset(policy.split(",")),
        max_compaction_lag_ms=lag,
    )
    assert config.max_segment_ms == expected
