"""The metrics of a group membership, under Kafka's names."""

from collections.abc import Callable
from typing import Final

from penstock.client.metrics import Max, MetricGroup, Metrics, Sensor, Stats, average, meter
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest

GROUP: Final = "consumer-coordinator-metrics"


class GroupMetrics:
    """Sensors of the latency of requests to the coordinator."""

    def __init__(self, metrics: Metrics, assigned: Callable[[], int]) -> None:
        group = MetricGroup(metrics, GROUP)

        def latency(request: str, stats: Stats) -> Sensor:
            counts = meter(request, f"{request.capitalize()} requests", of_count=True)
            return group.sensor(f"{request}-latency", {**stats, **counts})

        slowest = {"heartbeat-response-time-max": (Max(), "Longest time of a heartbeat in ms")}
        heartbeat = latency("heartbeat", slowest)
        self._by_request: dict[type[Message], Sensor] = {
            HeartbeatRequest: heartbeat,
            ConsumerGroupHeartbeatRequest: heartbeat,
            JoinGroupRequest: latency("join", average("join-time", "Time of a join in ms")),
            SyncGroupRequest: latency("sync", average("sync-time", "Time of a sync in ms")),
        }
        self.commit = latency("commit", average("commit-latency", "Time of a commit in ms"))
        group.gauge("assigned-partitions", "Partitions assigned now", assigned)

    def record_request(self, request: Message, latency_ms: int) -> None:
        sensor = self._by_request.get(type(request))
        if sensor is not None:
            sensor.record(latency_ms)
