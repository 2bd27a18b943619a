"""What clients and followers have written to and read from a topic on this broker."""


class TopicTraffic:
    """Counters of one topic: plain integers that the replicas of the topic share."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "messages_in",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        """What this broker has fetched from leaders."""
        self.replication_bytes_out = 0
        """What followers have fetched from this broker."""

    def add(self, other: "TopicTraffic") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out
