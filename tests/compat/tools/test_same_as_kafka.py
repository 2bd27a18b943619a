"""The same commands against Kafka's broker and ours have the same output (M4)."""

import pytest

from tests.compat.tools.commands import SETTINGS, Outcome, commands, run_all
from tests.support.broker.process import PenstockBroker
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka.once import once_per_run
from tests.support.kafka.tools import KafkaTools, Shell

Both = tuple[list[Outcome], list[Outcome]]


@pytest.fixture(scope="session")
def outcomes(
    kafka_parts: KafkaParts, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Both:
    """The outcome of each command with Kafka and with us."""

    def run_with_both() -> Both:
        directory = tmp_path_factory.mktemp("kafka")
        with KafkaBroker(kafka_parts, directory, SETTINGS) as kafka:
            theirs = list(run_all(Shell(tools, kafka.bootstrap), directory))
        directory = tmp_path_factory.mktemp("penstock")
        with PenstockBroker(directory, SETTINGS) as penstock:
            ours = list(run_all(Shell(tools, penstock.bootstrap), directory))
        return theirs, ours

    return once_per_run(tmp_path_factory, "tool-outcomes", lambda _: run_with_both())


@pytest.mark.parametrize("number", range(len(commands())), ids=commands())
def test_a_command_has_the_same_outcome(outcomes: Both, number: int) -> None:
    """M4, E1: the output; for a failure only the error, since the message differs."""
    theirs, ours = (outcome[number] for outcome in outcomes)
    assert ours == theirs
