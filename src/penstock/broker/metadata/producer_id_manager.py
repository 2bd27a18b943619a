"""Producer ids for idempotent producers, allocated from the controller in blocks."""

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.controller.producer_ids import next_block


class ProducerIdManager:
    """Generates ids that were never used: a block is committed before its first id is used."""

    def __init__(self, broker_id: int, controller: ControllerHost) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._next = 0
        self._end = 0

    def take(self) -> int | None:
        """Returns the next id, or None if the block is used up."""
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def wait(self) -> int:
        """Returns the next id, from a new block if needed."""
        while (producer_id := self.take()) is None:
            block = await self._controller.run(lambda image: next_block(image, self._broker_id))
            # A concurrent caller may have allocated a block too; the rest of the earlier one is
            # dropped.
            self._next, self._end = block.block_start, block.block_end + 1
        return producer_id
