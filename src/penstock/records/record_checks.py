"""Checks of single records before an append: keys of compacted topics, and timestamps.

`validate` scans a batch in one pass first, and checks its records one by one only if that has
found a violation, to name the records at fault.
"""

from typing import NoReturn

from penstock.core.errors import ErrorCode
from penstock.core.ids import NO_TIMESTAMP
from penstock.records.append_policy import AppendPolicy
from penstock.records.batch import TimestampType
from penstock.records.errors import RecordError, RecordValidationError

_MAX_INT64 = 2**63 - 1

MAX_RECORD_ERRORS = 100
"""Invalid records that an error names; the validation ends with the last of them."""


def are_timestamps_allowed(
    earliest: int, latest: int, append_time: bool, now_ms: int, policy: AppendPolicy
) -> bool:
    """Returns whether the timestamps are allowed.

    `earliest` ignores records without a timestamp; `append_time` is the batch's own type.
    """
    if policy.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return not append_time
    return (
        earliest >= now_ms - policy.timestamp_before_max_ms
        and latest <= now_ms + policy.timestamp_after_max_ms
        and not (append_time and latest == NO_TIMESTAMP)
    )


class RecordChecks:
    """The records of a batch that break a rule. Call `add` for each record, then `finish`."""

    def __init__(self, append_time: bool, now_ms: int, policy: AppendPolicy) -> None:
        self._append_time = append_time
        self._now_ms = now_ms
        self._policy = policy
        self._index = 0
        self._code = ErrorCode.INVALID_RECORD
        self._errors: list[RecordError] = []

    def add(self, timestamp: int, *, has_key: bool) -> None:
        """Checks the next record; raises the error at once if too many records are invalid."""
        reason = self._error(timestamp, has_key)
        if reason:
            self._errors.append(RecordError(self._index, reason))
            if len(self._errors) == MAX_RECORD_ERRORS:
                self._refuse(f"at least {MAX_RECORD_ERRORS}")
        self._index += 1

    def finish(self) -> None:
        """Raises RecordValidationError with the records at fault, if there are any."""
        if self._errors:
            self._refuse(str(len(self._errors)))

    def _error(self, timestamp: int, has_key: bool) -> str | None:
        policy, now_ms, append_time = self._policy, self._now_ms, self._append_time
        if not has_key and policy.compacted:
            return "a record of a compacted topic needs a key"
        earliest = _MAX_INT64 if timestamp == NO_TIMESTAMP and not append_time else timestamp
        if are_timestamps_allowed(earliest, timestamp, append_time, now_ms, policy):
            return None
        self._code = ErrorCode.INVALID_TIMESTAMP
        if append_time and (
            timestamp == NO_TIMESTAMP or policy.timestamp_type is TimestampType.LOG_APPEND_TIME
        ):
            return "producers must not send log append time, brokers set it"
        return (
            f"timestamp {timestamp} is not between "
            f"{now_ms - policy.timestamp_before_max_ms} and "
            f"{now_ms + policy.timestamp_after_max_ms}"
        )

    def _refuse(self, count: str) -> NoReturn:
        errors = self._errors
        examples = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:3])
        message = f"{count} of the batch's records are invalid. {examples}"
        raise RecordValidationError(self._code, message, tuple(errors))
