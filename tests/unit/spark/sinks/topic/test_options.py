"""Options of `format("penstock")` as a sink (D1)."""

import pytest

from penstock.spark.errors import OptionError
from penstock.spark.sinks.topic.options import WriterOptions

SERVERS = {"kafka.bootstrap.servers": "h:1"}


def test_options_are_read_whatever_their_case() -> None:
    chosen = WriterOptions.of(
        {
            **SERVERS,
            "kafka.linger.ms": "5",
            "Topic": " t ",
            "PIPELINE": "p",
            "newCheckpoint": "Accept",
            "checkpointLocation": "/c",
            "includeHeaders": "true",
        }
    )
    assert chosen == WriterOptions(
        {"bootstrap.servers": "h:1", "linger.ms": "5"}, "t", "p", True, True, "/c"
    )


def test_without_more_it_is_at_least_once() -> None:
    assert not WriterOptions.of(SERVERS).is_transactional
    assert WriterOptions.of({**SERVERS, "transactional": "true"}).is_transactional


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "'kafka.bootstrap.servers' must be specified"),
        ({**SERVERS, "pipeline": " "}, "option pipeline is empty"),
        ({**SERVERS, "transactional": "yes"}, "transactional=yes: it is one of"),
        ({**SERVERS, "transactional": "false", "pipeline": "p"}, "conflicts with pipeline"),
        ({**SERVERS, "newCheckpoint": "true"}, "newCheckpoint=true: it is one of refuse, accept"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "'key.serializer' is not supported"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "'value.serializer' is not supported"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "'transactional.id' is not supported"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        WriterOptions.of(options)
