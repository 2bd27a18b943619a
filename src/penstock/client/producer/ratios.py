"""How well the records of a topic compress, learnt from the batches before."""

from typing import Final

_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05


class CompressionRatios:
    """An estimate for each topic: quick to become careful, slow to become daring."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """The part of their size that records are expected to take; 1.0 at first."""
        return self._ratios.get(topic, 1.0)

    def observe(self, topic: str, ratio: float) -> None:
        """Learn from a batch."""
        estimate = self.estimate(topic)
        if ratio > estimate:
            self._ratios[topic] = max(estimate + _DETERIORATING_STEP, ratio)
        elif ratio < estimate:
            self._ratios[topic] = max(estimate - _IMPROVING_STEP, ratio)

    def reset(self, topic: str, ratio: float) -> None:
        """A batch was too large: expect no better than `ratio`, nor than none at all."""
        self._ratios[topic] = max(1.0, ratio)
