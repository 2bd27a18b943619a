"""Members of groups that confluent-kafka has: librdkafka, from Python."""

from collections.abc import Sequence

from confluent_kafka import Consumer, ConsumerGroupType, KafkaException, TopicPartition

from tests.support.kafka_clients.confluent_client import (
    TIMEOUT,
    client_error,
    make_admin,
    make_consumer,
    record_of,
    result_of,
)
from tests.support.kafka_clients.members import (
    GroupClient,
    GroupDescription,
    GroupMember,
    GroupProtocol,
    MemberDescription,
    Partition,
    PolledMember,
    settings_of,
)


class _Member(GroupMember):
    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], settings: dict[str, str]
    ) -> None:
        super().__init__()
        self._consumer: Consumer | None = make_consumer(
            bootstrap,
            group,
            {
                "log_level": 0,  # a refused member logs much
                **settings,
            },
        )
        self._consumer.subscribe(list(topics))

    def poll(self, seconds: float) -> None:
        assert self._consumer is not None
        for message in self._consumer.consume(1000, seconds):
            if (error := message.error()) is not None:
                raise client_error(error)
            self.records.append(record_of(message))
        self.assignment = _partitions(self._consumer.assignment())

    def commit(self) -> None:
        assert self._consumer is not None
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            raise client_error(error.args[0]) from None

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self.assignment = frozenset()


def _partitions(result: Sequence[TopicPartition]) -> frozenset[Partition]:
    return frozenset((partition.topic, partition.partition) for partition in result)


class ConfluentGroups(GroupClient):
    name = "confluent-kafka"

    def member(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        protocol: GroupProtocol = "consumer",
        **settings: str,
    ) -> GroupMember:
        subscription = topics if pattern is None else [f"^{pattern}$"]
        return _Member(bootstrap, group, subscription, settings_of(protocol, settings))

    def doomed_member(self, bootstrap: str, group: str, topics: Sequence[str]) -> PolledMember:
        # Imported late: the other process imports this module.
        from tests.support.kafka_clients.confluent_member_process import MemberProcess

        return MemberProcess(bootstrap, group, topics)

    def groups(self, bootstrap: str, of_type: str | None = None) -> dict[str, tuple[str, str]]:
        types = set() if of_type is None else {ConsumerGroupType[of_type.upper()]}
        admin = make_admin(bootstrap)
        result = result_of(admin.list_consumer_groups(types=types, request_timeout=TIMEOUT))
        return {
            group.group_id: (group.type.name.title(), group.state.name.title())
            for group in result.valid
        }

    def describe(self, bootstrap: str, group: str) -> GroupDescription:
        admin = make_admin(bootstrap)
        result = result_of(admin.describe_consumer_groups([group], request_timeout=TIMEOUT)[group])
        return GroupDescription(
            result.type.name.title(),
            result.state.name.title(),
            result.partition_assignor,
            [
                MemberDescription(
                    member.client_id,
                    member.group_instance_id,
                    _partitions(member.assignment.topic_partitions),
                    member.target_assignment
                    and _partitions(member.target_assignment.topic_partitions),
                )
                for member in result.members
            ],
        )
