"""When to send heartbeats, and when a member has been silent for too long."""

from penstock.client.consumer.group.actions import MemberSettings


class HeartbeatTimers:
    """Deadlines of a member, in monotonic milliseconds."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.interval_ms = settings.heartbeat_interval_ms
        self.heartbeat_at = 0
        self.session_ends = 0
        self.poll_ends = 0

    def reset(self, now: int) -> None:
        """A generation begins."""
        self.heartbeat_at = now + self.interval_ms
        self.session_ends = now + self._settings.session_timeout_ms
        self.polled(now)

    def polled(self, now: int) -> None:
        self.poll_ends = now + self._settings.max_poll_interval_ms

    def sent(self, now: int) -> None:
        self.heartbeat_at = now + self.interval_ms

    def answered(self, now: int) -> None:
        self.session_ends = now + self._settings.session_timeout_ms

    def failed(self, now: int) -> None:
        """Try again soon."""
        self.heartbeat_at = now + self._settings.retry_backoff_ms

    def next_deadline(self) -> int:
        return min(self.heartbeat_at, self.session_ends, self.poll_ends)
