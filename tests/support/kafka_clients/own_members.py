"""Members of our own client among those of others."""

import asyncio

from tests.support.client.own_groups import OwnMember
from tests.support.kafka_clients.members import PolledMember


class OwnPolledMember(PolledMember):
    """One of ours among members of other clients; its loop runs while it is polled."""

    def __init__(self, bootstrap: str, group: str, topic: str, **options: object) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._has_left = False
        self._loop.run_until_complete(self._start(bootstrap, group, topic, options))

    async def _start(
        self, bootstrap: str, group: str, topic: str, options: dict[str, object]
    ) -> None:
        self.member = OwnMember(bootstrap, group, **options)
        await self.member.start()
        self.member.subscribe(topic)

    def poll(self, seconds: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))
        if self.member.errors:
            raise self.member.errors[0]
        self.assignment = frozenset(self.member.owned)

    def subscribe(self, *topics: str) -> None:
        self._loop.call_soon(lambda: self.member.subscribe(*topics))

    def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        self._loop.run_until_complete(self.member.commit(offsets))

    def committed(self, *partitions: tuple[str, int]) -> list[int | None]:
        return self._loop.run_until_complete(self.member.committed(*partitions))

    def leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._loop.run_until_complete(self.member.close())
            self._loop.close()
            self.assignment = frozenset()
