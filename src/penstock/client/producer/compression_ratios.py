"""How well the records of a topic compress, estimated from earlier batches."""

from typing import Final

_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05


class CompressionRatioEstimator:
    """An estimate per topic, which rises fast when batches compress worse, and falls slowly."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """Returns the expected compressed size divided by the uncompressed size; 1.0 at first."""
        return self._ratios.get(topic, 1.0)

    def observe(self, topic: str, ratio: float) -> None:
        estimate = self.estimate(topic)
        if ratio > estimate:
            self._ratios[topic] = max(estimate + _DETERIORATING_STEP, ratio)
        elif ratio < estimate:
            self._ratios[topic] = max(estimate - _IMPROVING_STEP, ratio)

    def reset(self, topic: str, ratio: float) -> None:
        """Expects no compression, or the worse `ratio` of a batch that was too large."""
        self._ratios[topic] = max(1.0, ratio)
