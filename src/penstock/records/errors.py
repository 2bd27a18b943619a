"""Errors that only records know."""

from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError


class DecompressionLimitError(KafkaError):
    """Compressed bytes that would unpack to more than the limit. They may be well-formed."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a compressed batch unpacks to more than {limit} bytes: send smaller batches",
        )
        self.limit = limit


class RecordError(NamedTuple):
    """What is wrong with one record of a refused batch; goes into the produce response."""

    batch_index: int
    message: str


class RecordValidationError(KafkaError):
    """A batch refused because of single records; `record_errors` names each of them."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
