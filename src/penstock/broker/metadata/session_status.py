"""The state of this broker's session with the metadata store, for metrics and health."""

from penstock.cluster.store import SessionState


class SessionStatus:
    """Follows the session; `App` sets `is_registered` after each registration."""

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.expirations = 0
        self.is_registered = False
        """Whether this broker is registered in the session."""

    def update(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.EXPIRED:
            self.expirations += 1
            self.is_registered = False
