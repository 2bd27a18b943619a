"""Translates the errors of Spark and its processes into one line about a query."""

import re

from penstock.core.errors import KafkaError
from penstock.spark import errors
from penstock.spark.errors import FencedError, PipelineError, SparkPartError, printable
from penstock.spark.run.masters import was_stopped

_OWN_ERROR = re.compile(r"penstock\.spark\.errors\.(\w+): (.+)")
_CLIENTS = re.compile(r"penstock\.[\w.]+\.\w+Error: (.+)")
_PYTHON = re.compile(r"^(\w[\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_OTHER_DRIVER = (
    "Multiple streaming jobs detected",
    "CONCURRENT_STREAM_LOG_UPDATE",
    "another query with same id is already active",
    "STREAMING_QUERY_ALREADY_ACTIVE",
    "CONCURRENT_QUERY",
)


class SparkStoppedError(PipelineError):
    """Spark, or its process, has ended while a query ran."""


def failure_of(key: str, error: BaseException) -> Exception:
    """Returns the error of Penstock that was raised in a process of Spark; else one of one line."""
    if isinstance(error, SparkPartError):
        return error
    failure = _translate(key, error)
    failure.__cause__ = error
    return failure


def is_spark_gone(error: BaseException) -> bool:
    """Whether a call of Spark failed because its process has ended."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError)


def spark_gone_error(name: str) -> SparkStoppedError:
    """Returns the error for a pipeline or query whose Spark process has ended."""
    return SparkStoppedError(
        f"{name}: the Java process of Spark has ended. If nobody has stopped it, it had too "
        "little memory",
        remedy="raise spark.driver.memory, or make batches smaller with max_batch_records. Start "
        "the pipeline again: it continues where it stopped",
    )


def _translate(key: str, error: BaseException) -> SparkPartError:
    if isinstance(error, KafkaError):
        return PipelineError(f"{key}: {printable(str(error))}")
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return PipelineError(f"{key}: {type(error).__name__}: {printable(str(error))}")
    if is_spark_gone(error):
        return spark_gone_error(key)
    text = _with_causes(error)
    if any(message in text for message in _OTHER_DRIVER):
        return FencedError(
            f"{key}: another driver writes to the same checkpoint. Only one may run a pipeline",
            remedy="stop the other, or leave this one stopped",
        )
    for name, message in reversed(_OWN_ERROR.findall(text)):
        error_type = getattr(errors, name, None)
        if isinstance(error_type, type) and issubclass(error_type, SparkPartError):
            return error_type(printable(message.strip()))
    if was_stopped(text):
        return SparkStoppedError(
            f"{key}: Spark was stopped while the query ran, by its cluster or by a signal; its "
            "output is above",
            remedy="start the pipeline again: it continues where it stopped",
        )
    return PipelineError(f"{key}: {printable(_summary(text))}")


def _summary(text: str) -> str:
    """Returns the most informative line."""
    for pattern in (_CLIENTS, _PYTHON):
        matches = pattern.findall(text)
        if matches:
            last = matches[-1]
            return last.strip() if isinstance(last, str) else f"{last[0]}: {last[1].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        # The innermost cause; Spark also puts several causes into one line.
        reason = line.rpartition("Exception: ")[2]
        if reason != line and not reason.endswith(":"):
            return reason
    return lines[0]


def _with_causes(error: BaseException) -> str:
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < 10:
        parts.append(str(cause) or type(cause).__name__)
        cause = cause.__cause__
    return "\n".join(parts)
