"""What consumers of a classic group tell each other through the coordinator.

The bytes of a member's subscription in JoinGroup and of its assignment in SyncGroup; each is led
by its version as an int16 (see `versioned`). The coordinator does not look into them.
"""

from typing import Annotated

from penstock.protocol.fields import Int32, Message, Struct, data, wire


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class ConsumerProtocolSubscription(Message):
    INFO = data(versions="0-3")

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: Annotated[
        list[ConsumerProtocolSubscriptionTopicPartition], wire("1+", ignorable=True)
    ] = []
    generation_id: Annotated[Int32, wire("2+", ignorable=True)] = -1
    rack_id: Annotated[str | None, wire("3+", ignorable=True)] = None


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class ConsumerProtocolAssignment(Message):
    INFO = data(versions="0-3")

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = []
    user_data: bytes | None = None
