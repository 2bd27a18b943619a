"""An operator of a simulated cluster: topics come and go, partitions move, leaders are elected."""

from collections.abc import Callable
from typing import Any

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tests.sim.cluster.cluster_clients import DATA, Client, Cluster

_ATTEMPTS = 10
_ACTIONS = ("create", "delete", "reassign", "reassign", "replace", "cancel", "elect")


class Operator(Client):
    """Creates and deletes topics, reassigns partitions and elects preferred leaders."""

    def __init__(self, cluster: Cluster, partitions: int, *, is_replacing: bool) -> None:
        """`is_replacing` lets it remove replicas and assign them again most of the time."""
        super().__init__(cluster, "operator")
        self._partitions = partitions
        self._actions = (*_ACTIONS, *("replace",) * 10) if is_replacing else _ACTIONS
        self.topics: dict[str, bool | None] = {}
        """Whether a topic must exist in the end; None if nobody knows."""

    async def run(self) -> None:
        while not self.is_stopping:
            await self.pause(2000)
            match self.rng.choice(self._actions):
                case "create":
                    name = f"x{self.rng.randrange(3)}"
                    if self.topics.get(name) is not True:
                        await self.create(name, self.rng.randrange(1, 3))
                case "delete":
                    await self._delete()
                case "reassign":
                    await self._reassign()
                case "replace":
                    await self._replace()
                case "cancel":
                    await self._cancel()
                case "elect":
                    self.cluster.note("elect preferred leaders")
                    request = ElectLeadersRequest(0, None, 1000)
                    await self._send(request, ElectLeadersResponse, lambda r: [r.error_code])

    async def _send(
        self,
        message: Message,
        response_type: type[Message],
        codes: Callable[[Any], list[int]],
        attempts: int = _ATTEMPTS,
    ) -> ErrorCode | None:
        """Sends a request until a controller responds.

        Returns an error of its elements, if there is one; None without a response. A controller
        that does not know that it was replaced may refuse what the real one would do.
        """
        for _ in range(attempts):
            try:
                response = await self.request(self.any_broker(), message, response_type, 99)
            except KafkaError:
                await self.pause()
                continue
            results = [ErrorCode(code) for code in codes(response)]
            if ErrorCode.NOT_CONTROLLER not in results:
                return max(results, default=ErrorCode.NONE)
            await self.pause()
        return None

    async def create(self, name: str, partitions: int, attempts: int = _ATTEMPTS) -> None:
        """Creates a topic with a replica on three brokers."""
        self.cluster.note(f"create {name}")
        self.topics[name] = None
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 3)], timeout_ms=2000)
        error = await self._send(
            request, CreateTopicsResponse, lambda r: [t.error_code for t in r.topics], attempts
        )
        if error is ErrorCode.NONE:
            self.topics[name] = True
        self.cluster.note(f"create {name}: {error}")

    async def _delete(self) -> None:
        names = sorted(name for name, exists in self.topics.items() if exists is not False)
        names = [name for name in names if name.startswith("x")]
        if not names:
            return
        name = self.rng.choice(names)
        self.cluster.note(f"delete {name}")
        self.topics[name] = None
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=2000)
        error = await self._send(
            request, DeleteTopicsResponse, lambda r: [t.error_code for t in r.responses]
        )
        if error is ErrorCode.NONE:
            self.topics[name] = False
        self.cluster.note(f"delete {name}: {error}")

    async def _reassign(self) -> None:
        number = self.rng.choice((2, 3, 3))
        replicas = self.rng.sample(self.cluster.broker_ids, number)
        await self._alter({self.rng.randrange(self._partitions): replicas})

    async def _replace(self) -> None:
        """Removes a follower of a partition, and assigns it again as soon as it is removed."""
        key = TopicPartition(DATA, self.rng.randrange(self._partitions))
        leader, replicas = self.cluster.assignment_of(key)
        if len(replicas) < 3:
            return  # the last replica may lose records
        removed = self.rng.choice([replica for replica in replicas if replica != leader])
        await self._alter({key.partition: [r for r in replicas if r != removed]})
        for _ in range(20):
            if removed not in self.cluster.assignment_of(key)[1]:
                break
            await self.pause(100)
        await self._alter({key.partition: list(replicas)})

    async def _cancel(self) -> None:
        await self._alter(dict.fromkeys(range(self._partitions)))

    async def _alter(self, partitions: "dict[int, list[int] | None]") -> ErrorCode | None:
        self.cluster.note(f"reassign {partitions}")
        topic = ReassignableTopic(
            DATA, [ReassignablePartition(number, ids) for number, ids in partitions.items()]
        )
        return await self._send(
            AlterPartitionReassignmentsRequest(2000, topics=[topic]),
            AlterPartitionReassignmentsResponse,
            lambda r: [r.error_code],
        )

    async def restore(self) -> None:
        """Assigns three replicas to every partition again, until the controller agrees."""
        ids = self.cluster.broker_ids
        partitions: dict[int, list[int] | None] = {
            number: [ids[(number + index) % len(ids)] for index in range(3)]
            for number in range(self._partitions)
        }
        for _ in range(50):
            if await self._alter(partitions) is ErrorCode.NONE:
                return
        raise AssertionError("the partitions could not be reassigned")
