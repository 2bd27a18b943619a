"""The metrics of a group membership, under Kafka's names."""

from collections.abc import Callable
from typing import Final

from penstock.client.metrics import Avg, Max, Metrics, Sensor
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest

GROUP: Final = "consumer-coordinator-metrics"


class GroupMetrics:
    """Sensors of the latency of requests to the coordinator."""

    def __init__(self, metrics: Metrics, assigned: Callable[[], int]) -> None:
        self._metrics = metrics
        heartbeat = self._latency("heartbeat", "heartbeat-response-time-max", with_average=False)
        self._by_request: dict[type[Message], Sensor] = {
            HeartbeatRequest: heartbeat,
            ConsumerGroupHeartbeatRequest: heartbeat,
            JoinGroupRequest: self._latency("join", "join-time-max"),
            SyncGroupRequest: self._latency("sync", "sync-time-max"),
        }
        self._commit = self._latency("commit", "commit-latency-max")
        metrics.gauge(
            metrics.name("assigned-partitions", GROUP, "Partitions assigned now."), assigned
        )

    def _latency(self, request: str, max_name: str, *, with_average: bool = True) -> Sensor:
        name = self._metrics.name
        sensor = self._metrics.sensor(f"{request}-latency")
        sensor.add(name(max_name, GROUP, f"Longest time of a {request}, ms."), Max())
        if with_average:
            average_name = max_name.replace("-max", "-avg")
            sensor.add(name(average_name, GROUP, f"Time of a {request}, ms."), Avg())
        sensor.add_meter(
            name(f"{request}-rate", GROUP, f"{request} requests per second."),
            name(f"{request}-total", GROUP, f"{request} requests."),
            of_count=True,
        )
        return sensor

    def record_request(self, request: Message, latency_ms: int) -> None:
        sensor = self._by_request.get(type(request))
        if sensor is not None:
            sensor.record(latency_ms)

    def record_commit(self, latency_ms: int) -> None:
        self._commit.record(latency_ms)
