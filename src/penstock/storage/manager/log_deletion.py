"""Deletion of many logs, over all folders of `log.dirs`, in turns."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.staged_operation import Stages, Turns


def deletion(
    homes: Mapping[LogDir, Sequence[TopicPartition]],
    wait: Turns[None],
    stores: Callable[[LogDir], Sequence[FileWrite]],
) -> Turns[list[KafkaError]]:
    """Deletes logs; the result is what went wrong.

    The logs are out of sight after the first turn. `wait` is what must come to its end before
    their folders get other names; `stores` gives what is to be written when they have.
    """
    errors: list[KafkaError] = []
    under_way: dict[LogDir, Stages[None]] = {}

    def advance(stages: Stages[None]) -> bool:
        try:
            return stages.advance()
        except KafkaStorageError as error:
            errors.append(error)
            return True

    for home, partitions in homes.items():
        stages = Stages(home.deletion(partitions))
        if not advance(stages):
            under_way[home] = stages
    yield from wait
    while under_way:
        yield partial(_run_all, list(under_way.values()))
        under_way = {home: stages for home, stages in under_way.items() if not advance(stages)}
    for home in homes:
        for file in stores(home):
            yield file.run
            if file.error is not None:
                home.fail(file.error)
    return errors


def _run_all(stages: Sequence[Stages[None]]) -> None:
    for each in stages:
        each.run()
