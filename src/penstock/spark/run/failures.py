"""What went wrong in a query, out of what Spark makes of it."""

import re

from penstock.core.errors import KafkaError
from penstock.spark import errors
from penstock.spark.errors import FencedError, PipelineError, SparkPartError
from penstock.spark.run.masters import was_stopped

_OURS = re.compile(r"penstock\.spark\.errors\.(\w+): (.+)")
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
    """Our own error, if that is what was raised in some process of Spark's; else one line."""
    if isinstance(error, SparkPartError):
        return error
    found = _translated(key, error)
    found.__cause__ = error
    return found


def is_spark_gone(error: BaseException) -> bool:
    """Of what was raised by a call of Spark: whether its process does not answer any more."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError)


def spark_gone_error(who: str) -> SparkStoppedError:
    return SparkStoppedError(
        f"{who}: the Java process of Spark has ended. If nobody has stopped it, it had too little "
        "memory: raise spark.driver.memory, or make batches smaller with max_batch_records. Start "
        "the pipeline again: it goes on where it was"
    )


def _translated(key: str, error: BaseException) -> SparkPartError:
    if isinstance(error, KafkaError):
        return PipelineError(f"{key}: {error}")
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return PipelineError(f"{key}: {type(error).__name__}: {error}")
    if is_spark_gone(error):
        return spark_gone_error(key)
    text = _with_causes(error)
    if any(each in text for each in _OTHER_DRIVER):
        return FencedError(
            f"{key}: another driver writes to the same checkpoint. Only one may run a pipeline: "
            "stop the other, or leave this one stopped"
        )
    for found in reversed(_OURS.findall(text)):
        kind = getattr(errors, found[0], None)
        if isinstance(kind, type) and issubclass(kind, SparkPartError):
            return kind(found[1].strip())
    if was_stopped(text):
        return SparkStoppedError(
            f"{key}: Spark was stopped while the query ran, by its cluster or by a signal; what it "
            "says is above. Start the pipeline again: it goes on where it was"
        )
    return PipelineError(f"{key}: {_summary(text)}")


def _summary(text: str) -> str:
    """The line that says most."""
    for pattern in (_CLIENTS, _PYTHON):
        found = pattern.findall(text)
        if found:
            last = found[-1]
            return last.strip() if isinstance(last, str) else f"{last[0]}: {last[1].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        # The innermost cause; Spark puts several of them into one line, too.
        reason = line.rpartition("Exception: ")[2]
        if reason != line and not reason.endswith(":"):
            return reason
    return lines[0]


def _with_causes(error: BaseException) -> str:
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 10:
        parts.append(str(seen) or type(seen).__name__)
        seen = seen.__cause__
    return "\n".join(parts)
