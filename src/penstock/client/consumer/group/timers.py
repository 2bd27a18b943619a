"""The timers of a member: heartbeats, session timeout, poll interval."""

from penstock.client.consumer.group.actions import MemberSettings


class HeartbeatTimers:
    """Deadlines of a member, in monotonic milliseconds."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.interval_ms = settings.heartbeat_interval_ms
        self.heartbeat_at = 0
        self.session_deadline = 0
        self.poll_deadline = 0

    def reset(self, now: int) -> None:
        """Starts all timers, at the begin of a generation."""
        self.heartbeat_at = now + self.interval_ms
        self.session_deadline = now + self._settings.session_timeout_ms
        self.polled(now)

    def polled(self, now: int) -> None:
        self.poll_deadline = now + self._settings.max_poll_interval_ms

    def heartbeat_sent(self, now: int) -> None:
        self.heartbeat_at = now + self.interval_ms

    def heartbeat_received(self, now: int) -> None:
        self.session_deadline = now + self._settings.session_timeout_ms

    def heartbeat_failed(self, now: int) -> None:
        """Schedules the next heartbeat after the retry backoff."""
        self.heartbeat_at = now + self._settings.retry_backoff_ms
