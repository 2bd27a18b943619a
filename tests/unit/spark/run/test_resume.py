"""Where a query resumes, and when it refuses to (D3)."""

from dataclasses import replace

import pytest

from penstock.core.ids import TopicPartition
from penstock.spark.errors import CheckpointLostError, PipelineError, ProgressError
from penstock.spark.progress import Progress, SourceOffsets, StoredProgress
from penstock.spark.run.resume import CheckpointState, QueryPlan, check_first_run, resume_position

STATELESS = QueryPlan(("orders",), stateful=False)
STATEFUL = QueryPlan(("orders",), stateful=True)


def at(offset: int, *sources: str) -> Progress:
    return {
        name: SourceOffsets({TopicPartition("orders", 0): offset}, {"orders": "id"}, name)
        for name in sources or ("orders",)
    }


CHECKPOINT = CheckpointState(
    exists=True, query_id="q", begin=at(0), planned=4, done=4, start=at(7), end=at(9)
)


def test_a_first_run_needs_an_empty_checkpoint() -> None:
    check_first_run("p.s", CheckpointState(), "there")
    with pytest.raises(PipelineError, match=r"checkpoint in there.*rebuild"):
        check_first_run("p.s", CheckpointState(exists=True), "there")


@pytest.mark.parametrize("plan", [STATELESS, STATEFUL])
def test_with_its_checkpoint_a_query_resumes(plan: QueryPlan) -> None:
    assert resume_position("p.s", StoredProgress(at(9), "q", 4), CHECKPOINT, plan) == at(0)


@pytest.mark.parametrize("plan", [STATELESS, STATEFUL])
@pytest.mark.parametrize("offset", [7, 9])
def test_the_last_batch_may_be_stored_or_not_while_spark_has_not_committed_it(
    plan: QueryPlan, offset: int
) -> None:
    checkpoint = replace(CHECKPOINT, done=3)
    assert resume_position("p.s", StoredProgress(at(offset), "q", 3), checkpoint, plan) == at(0)


def test_without_a_checkpoint_the_stored_offsets_count() -> None:
    assert resume_position(
        "p.s", StoredProgress(at(9), "q", 4), CheckpointState(), STATELESS
    ) == at(9)


def test_without_a_checkpoint_state_is_lost() -> None:
    with pytest.raises(CheckpointLostError, match="keeps state"):
        resume_position("p.s", StoredProgress(at(9), "q", 4), CheckpointState(), STATEFUL)


def test_a_query_that_has_stored_no_batch_has_no_state_to_lose() -> None:
    checkpoint = CheckpointState(exists=True, begin=at(3))
    assert resume_position("p.s", StoredProgress(at(5)), checkpoint, STATEFUL) == at(5)


def test_state_of_another_checkpoint_does_not_belong_to_the_results() -> None:
    with pytest.raises(CheckpointLostError, match="not the one to which the results belong"):
        resume_position("p.s", StoredProgress(at(9), "other", 4), CHECKPOINT, STATEFUL)
    assert resume_position("p.s", StoredProgress(at(9), "other", 4), CHECKPOINT, STATELESS) == at(0)


def test_a_sink_that_does_not_have_a_committed_batch_was_restored() -> None:
    with pytest.raises(ProgressError, match="was the database restored"):
        resume_position("p.s", StoredProgress(at(7), "q", 3), CHECKPOINT, STATELESS)


@pytest.mark.parametrize("offset", [2, 8, 12])
def test_a_sink_at_other_offsets_is_refused_immediately(offset: int) -> None:
    with pytest.raises(ProgressError, match="other offsets than the checkpoint"):
        resume_position("p.s", StoredProgress(at(offset), "q", 3), CHECKPOINT, STATELESS)


def test_the_first_batch_starts_at_the_start_of_the_query() -> None:
    checkpoint = CheckpointState(exists=True, query_id="q", begin=at(3), planned=0, end=at(9))
    assert resume_position("p.s", StoredProgress(at(3)), checkpoint, STATEFUL) == at(3)
    assert resume_position("p.s", StoredProgress(at(9), "q", 0), checkpoint, STATEFUL) == at(3)
    with pytest.raises(ProgressError, match="does not say where the query began"):
        resume_position(
            "p.s", StoredProgress(at(9), "q", 0), replace(checkpoint, begin=None), STATEFUL
        )


def test_other_sources_than_before_are_refused() -> None:
    for stored in (at(9, "orders", "clicks"), at(9, "clicks")):
        with pytest.raises(PipelineError, match="sources"):
            resume_position("p.s", StoredProgress(stored, "q", 4), CheckpointState(), STATELESS)


def test_a_pattern_may_have_no_stored_offsets() -> None:
    plan = QueryPlan(("orders", "any"), stateful=False, patterns=frozenset({"any"}))
    assert resume_position("p.s", StoredProgress(at(9), "q", 4), CheckpointState(), plan) == at(9)


def test_a_source_that_is_read_twice_resumes_only_from_one_position() -> None:
    plan = QueryPlan(("orders", "orders#2"), stateful=False)
    both = at(9, "orders", "orders#2")
    assert resume_position("p.s", StoredProgress(both, "q", 4), CheckpointState(), plan) == both
    apart = {**both, **at(8, "orders#2")}
    with pytest.raises(CheckpointLostError, match="two places"):
        resume_position("p.s", StoredProgress(apart, "q", 4), CheckpointState(), plan)
