"""Errors of Spark as one clear line."""

import pytest
from py4j.protocol import Py4JNetworkError

from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.errors import DataLossError, FencedError, PipelineError, ProgressError
from penstock.spark.run.failures import SparkStoppedError, failure_of, is_spark_gone


class FakeSparkError(Exception):
    """An error like pyspark's."""

    __module__ = "pyspark.errors"


PLANNING = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] \
Failed to plan Python data source. Traceback (most recent call last):
  File "runner.py", line 1, in main
    raise DataLossError(
penstock.spark.errors.DataLossError: orders-0 starts at offset 5 now. Records may be missing
 SQLSTATE: 38000"""


def test_an_error_of_penstock_in_another_process_is_restored() -> None:
    result = failure_of("p.s", FakeSparkError(PLANNING))
    assert isinstance(result, DataLossError)
    assert str(result) == "orders-0 starts at offset 5 now. Records may be missing"


def test_an_error_of_penstock_is_unchanged() -> None:
    error = ProgressError("x")
    assert failure_of("p.s", error) is error


@pytest.mark.parametrize(
    "message",
    [
        "Concurrent update to the log. Multiple streaming jobs detected for 5.",
        "[CONCURRENT_STREAM_LOG_UPDATE] …",
    ],
)
def test_a_second_driver_on_the_same_checkpoint_is_fenced(message: str) -> None:
    assert isinstance(failure_of("p.s", FakeSparkError(message)), FencedError)


def test_spark_that_was_stopped_by_its_cluster() -> None:
    message = "Job 3 cancelled because SparkContext was shut down\n at x"
    result = failure_of("p.s", FakeSparkError(message))
    assert isinstance(result, SparkStoppedError)
    assert str(result).startswith("p.s: Spark was stopped while the query ran")


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "no")]
)
def test_an_ended_spark_process_is_recognized(error: Exception) -> None:
    assert is_spark_gone(error)
    assert not is_spark_gone(ValueError())


def test_a_batch_whose_spark_has_ended_has_one_clear_error() -> None:
    result = failure_of("p.s", Py4JNetworkError("Answer from Java side is empty"))
    assert isinstance(result, SparkStoppedError)
    assert str(result).startswith("p.s: the Java process of Spark has ended")


def test_the_message_of_a_client_error_is_kept() -> None:
    text = "Traceback\n  File x\npenstock.client.errors.UnknownTopicError: a: no such topic\n more"
    assert str(failure_of("p.s", FakeSparkError(text))) == "p.s: a: no such topic"


def test_the_message_of_a_python_error_is_kept() -> None:
    cause = ValueError("Traceback\nKeyError: 'x'\n")
    error = FakeSparkError("An exception was raised by the Python Proxy")
    error.__cause__ = cause
    result = failure_of("p.s", error)
    assert type(result) is PipelineError
    assert str(result) == "p.s: KeyError: 'x'"


def test_other_errors_of_spark_become_their_first_line() -> None:
    assert str(failure_of("p.s", FakeSparkError("\n first \n\n at x"))) == "p.s: first"
    assert str(failure_of("p.s", FakeSparkError())) == "p.s: FakeSparkError"


def test_errors_in_the_driver_have_their_type_and_message() -> None:
    error = KeyError("x")
    result = failure_of("p.s", error)
    assert str(result) == "p.s: KeyError: 'x'"
    assert result.__cause__ is error
    kafka_error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    assert "not allowed" in str(failure_of("p.s", kafka_error))


def test_text_of_records_in_an_error_stays_on_its_line() -> None:
    error = ValueError("cannot cast '\x1b[2J\nERROR forged'")
    assert str(failure_of("p.s", error)) == (
        r"p.s: ValueError: cannot cast '\x1b[2J\nERROR forged'"
    )
