"""The log format of a running broker: for people, or one JSON object per line."""

import json
import logging
import sys
import time
from enum import StrEnum

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


class HumanFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,123 INFO  replicas  text key=value`."""

    def __init__(self, broker_id: int | None = None) -> None:
        """Lines name the broker if several processes write to the same output."""
        super().__init__()
        self._source = "" if broker_id is None else f"[broker {broker_id}] "

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = (
            f"{at},{int(record.msecs):03d} {record.levelname:<7} "
            f"{self._source}{_component(record):<9} {record.getMessage()}{fields}"
        )
        return (
            line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"
        )


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, component, message and the `extra` fields."""

    def __init__(self, broker_id: int | None = None) -> None:
        super().__init__()
        self._source = {} if broker_id is None else {"broker": broker_id}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            **self._source,
            "component": _component(record),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _component(record: logging.LogRecord) -> str:
    return record.name.removeprefix("penstock.")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Returns the fields that were passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}


def set_up_logging(log_format: LogFormat, level: str, broker_id: int | None = None) -> None:
    """Sends all log lines to standard error; standard output is for results.

    Lines name the broker if several processes write to the same output.
    """
    handler = logging.StreamHandler(sys.stderr)
    formatter = JsonFormatter if log_format is LogFormat.JSON else HumanFormatter
    handler.setFormatter(formatter(broker_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
