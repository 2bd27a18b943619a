"""Delivery of pending records when the interpreter ends with blocking producers still open."""

import atexit
import logging
import weakref
from typing import Final, Protocol

from penstock.client.producer.core import ProducerCore

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 5.0


class _Producer(Protocol):
    def close(self, timeout: float | None = None) -> None: ...


_producers: "weakref.WeakKeyDictionary[_Producer, ProducerCore]" = weakref.WeakKeyDictionary()


def deliver_at_exit(producer: _Producer, core: ProducerCore) -> None:
    """Has the producer closed when the interpreter ends, if it is open then."""
    _producers[producer] = core


@atexit.register
def _close_producers() -> None:
    """Closes open producers: their threads end with the interpreter, and records would be lost."""
    for producer, core in list(_producers.items()):
        if core.is_closed:
            continue
        count = len(core.accumulator.incomplete_results())
        try:
            producer.close(_TIMEOUT_S)
        finally:
            if count:
                logger.warning(
                    "producer %s was not closed; %s batches were pending when the program ended, "
                    "and had %s s to be delivered",
                    core.settings["client_id"],
                    count,
                    _TIMEOUT_S,
                )
