"""Which offsets a group shall have (C5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.admin.reset_offsets import (
    Bounds,
    Reset,
    Rule,
    RuleKind,
    decide,
    parse_csv,
    parse_duration_ms,
    parse_time_ms,
    to_csv,
)
from penstock.cli.output import UsageError
from penstock.core.ids import TopicPartition

AT = TopicPartition("orders", 0)
BOUNDS = Bounds(earliest=10, latest=50, committed=30, at_time=20)


@pytest.mark.parametrize(
    ("rule", "bounds", "new", "note"),
    [
        (Rule(RuleKind.EARLIEST), BOUNDS, 10, None),
        (Rule(RuleKind.LATEST), BOUNDS, 50, None),
        (Rule(RuleKind.CURRENT), BOUNDS, 30, None),
        (Rule(RuleKind.CURRENT), BOUNDS._replace(committed=5), 10, "5 is outside of 10 to 50"),
        (
            Rule(RuleKind.CURRENT),
            BOUNDS._replace(committed=None),
            50,
            "nothing was committed: the end",
        ),
        (Rule(RuleKind.OFFSET, 42), BOUNDS, 42, None),
        (Rule(RuleKind.OFFSET, 7), BOUNDS, 10, "7 is outside of 10 to 50"),
        (Rule(RuleKind.OFFSET, 51), BOUNDS, 50, "51 is outside of 10 to 50"),
        (Rule(RuleKind.TIME, 1), BOUNDS, 20, None),
        (
            Rule(RuleKind.TIME, 1),
            BOUNDS._replace(at_time=None),
            50,
            "no record is as late: the end",
        ),
        (Rule(RuleKind.SHIFT, -5), BOUNDS, 25, None),
        (Rule(RuleKind.SHIFT, -25), BOUNDS, 10, "5 is outside of 10 to 50"),
        (Rule(RuleKind.SHIFT, 100), BOUNDS, 50, "130 is outside of 10 to 50"),
        (Rule(RuleKind.FILE, offsets={AT: 33}), BOUNDS, 33, None),
    ],
)
def test_rules(rule: Rule, bounds: Bounds, new: int, note: str | None) -> None:
    assert decide(rule, AT, bounds) == Reset(AT, bounds.committed, new, note)


def test_a_shift_needs_a_committed_offset() -> None:
    with pytest.raises(UsageError, match="needs a committed offset, and the group has none"):
        decide(Rule(RuleKind.SHIFT, 1), AT, BOUNDS._replace(committed=None))


@given(
    st.sampled_from([kind for kind in RuleKind if kind is not RuleKind.FILE]),
    st.integers(-1000, 1000),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 1000),
)
def test_new_offsets_can_be_read(
    kind: RuleKind, number: int, earliest: int, count: int, committed: int
) -> None:
    bounds = Bounds(earliest, earliest + count, committed, None)
    new = decide(Rule(kind, number), AT, bounds).new
    assert earliest <= new <= earliest + count


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P7D", 7 * 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT12H", 129_600_000),
        ("PT0.5S", 500),
        ("pt2s", 2_000),
        ("-PT1M", -60_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1", "P1DT", "PT1D", "P1M"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration: write days"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01.250", 1_250),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("1700000000000", 1_700_000_000_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "2026-13-01T00:00:00"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time: write 2026-01-31"):
        parse_time_ms(text)


def test_files_of_offsets() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    assert parse_csv("a,0,5\n\nb,1,7\n", ["g"], "x.csv") == {"g": {a: 5, b: 7}}
    text = "group,topic,partition,offset\ng,a,0,5\nh,b,1,7\n"
    assert parse_csv(text, ["g", "h"], "x.csv") == {"g": {a: 5}, "h": {b: 7}}
    resets = [("g", Reset(a, 1, 5)), ("h", Reset(b, None, 7))]
    assert to_csv(resets, with_group=True) == "g,a,0,5\nh,b,1,7\n"
    assert to_csv(resets[:1], with_group=False) == "a,0,5\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,0", r"x\.csv, line 1: it must be \[GROUP,\]TOPIC,PARTITION,OFFSET"),
        ("a,0,1\na,0,x", r"x\.csv, line 2: partition and offset must be whole numbers"),
    ],
)
def test_files_that_make_no_sense(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_csv(text, ["g"], "x.csv")


def test_lines_without_a_group_need_one_group() -> None:
    with pytest.raises(UsageError, match="each line must begin with its group"):
        parse_csv("a,0,1", ["g", "h"], "x.csv")


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text('a,"-', min_size=1), st.integers(0, 9)),
        st.integers(0, 99),
        min_size=1,
    )
)
def test_what_is_exported_can_be_read(offsets: dict[TopicPartition, int]) -> None:
    resets = [("g", Reset(offset, None, new)) for offset, new in offsets.items()]
    for with_group in (True, False):
        assert parse_csv(to_csv(resets, with_group=with_group), ["g"], "x") == {"g": offsets}
