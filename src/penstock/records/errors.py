"""Errors that are specific to record batches."""

from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError


class DecompressionLimitError(KafkaError):
    """Compressed data that would exceed the decompression limit; it may be well-formed."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a compressed batch decompresses to more than {limit} bytes",
            remedy=(
                "send smaller batches, or raise message.max.decompressed.bytes of the broker; on a "
                "small machine, request.memory.max.bytes limits it too"
            ),
        )
        self.limit = limit


class RecordError(NamedTuple):
    """Why one record made the broker refuse its batch; part of the Produce response."""

    batch_index: int
    message: str


class RecordValidationError(KafkaError):
    """A batch that was refused because of the records listed in `record_errors`."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
