"""Deletion of many logs, over all directories of `log.dirs`, in steps."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.staged_operation import StagedOperation, Steps


def deletion(
    homes: Mapping[LogDir, Sequence[TopicPartition]],
    wait: Steps[None],
    stores: Callable[[LogDir], Sequence[FileWrite]],
) -> Steps[list[KafkaError]]:
    """Deletes logs; the result is what went wrong.

    The logs are out of sight after the first turn. `wait` is what must come to its end before
    their directories get other names; `stores` gives what is to be written when they have.
    """
    errors: list[KafkaError] = []
    under_way: dict[LogDir, StagedOperation[None]] = {}

    def advance(operation: StagedOperation[None]) -> bool:
        try:
            return operation.advance()
        except KafkaStorageError as error:
            errors.append(error)
            return True

    for home, partitions in homes.items():
        operation = StagedOperation(home.deletion(partitions))
        if not advance(operation):
            under_way[home] = operation
    yield from wait
    while under_way:
        yield partial(_run_all, list(under_way.values()))
        under_way = {
            home: operation for home, operation in under_way.items() if not advance(operation)
        }
    for home in homes:
        for file in stores(home):
            yield file.run
            if file.error is not None:
                home.fail(file.error)
    return errors


def _run_all(operation: Sequence[StagedOperation[None]]) -> None:
    for each in operation:
        each.run()
