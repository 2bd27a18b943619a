"""Deletion of many logs, over all log directories, as one staged operation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.staged_operation import StagedOperation, Steps


def delete_logs(
    partitions_by_dir: Mapping[LogDir, Sequence[TopicPartition]],
    wait_for_swaps: Steps[None],
    checkpoints_of: Callable[[LogDir], Sequence[FileWrite]],
) -> Steps[list[KafkaError]]:
    """Deletes logs; returns the errors.

    The logs are removed from their `LogDir` in the first step. `wait_for_swaps` runs before their
    directories are renamed; `checkpoints_of` returns the files to write after that.
    """
    errors: list[KafkaError] = []
    operations: dict[LogDir, StagedOperation[None]] = {}

    def advance(operation: StagedOperation[None]) -> bool:
        try:
            return operation.advance()
        except KafkaStorageError as error:
            errors.append(error)
            return True

    for log_dir, partitions in partitions_by_dir.items():
        operation = StagedOperation(log_dir.delete_steps(partitions))
        if not advance(operation):
            operations[log_dir] = operation
    yield from wait_for_swaps
    while operations:
        yield partial(_run_all, list(operations.values()))
        operations = {
            log_dir: operation
            for log_dir, operation in operations.items()
            if not advance(operation)
        }
    for log_dir in partitions_by_dir:
        for checkpoint in checkpoints_of(log_dir):
            yield checkpoint.run
            log_dir.finish_checkpoint(checkpoint)
    return errors


def _run_all(operations: Sequence[StagedOperation[None]]) -> None:
    for operation in operations:
        operation.run()
