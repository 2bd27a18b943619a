"""The text formats of Prometheus: its own (0.0.4) and OpenMetrics 1.0.

Collectors add families and their samples to an `Exposition`. The samples are the same text in both
formats; only the headers differ.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from math import inf, isnan
from typing import Final

from penstock.core.histogram import Histogram


class Format(Enum):
    """A text format; the value is its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def accepted_format(accept: str) -> Format:
    """Returns OpenMetrics for a client whose Accept header prefers it, else Prometheus' own."""
    weights: dict[str, float] = {}
    for item in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        weights[media_type] = max(weights.get(media_type, 0.0), weight)
    text = max(weights.get("text/plain", 0.0), weights.get("*/*", 0.0))
    preferred = weights.get("application/openmetrics-text", 0.0)
    return Format.OPENMETRICS if preferred > 0 and preferred >= text else Format.PROMETHEUS


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_TOTAL: Final = "_total"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def format_labels(labels: Mapping[str, str]) -> str:
    """Returns labels in braces; nothing if there are none."""
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def format_number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if isnan(value) else repr(value)


class Family:
    """The samples of one metric."""

    __slots__ = ("documentation", "kind", "lines", "name")

    def __init__(self, name: str, kind: Kind, documentation: str) -> None:
        if kind is Kind.COUNTER and not name.endswith(_TOTAL):
            raise ValueError(f"the name of the counter {name} must end with {_TOTAL}")
        self.name = name
        self.kind = kind
        self.documentation = documentation
        self.lines: list[str] = []

    def add(self, value: float, **labels: str) -> None:
        self.lines.append(f"{self.name}{format_labels(labels)} {format_number(value)}\n")

    def add_histogram(self, histogram: Histogram, **labels: str) -> None:
        name, count = self.name, 0
        for bound, in_bucket in zip((*histogram.bounds, inf), histogram.counts, strict=True):
            count += in_bucket
            pairs = format_labels({**labels, "le": format_number(float(bound))})
            self.lines.append(f"{name}_bucket{pairs} {count}\n")
        pairs = format_labels(labels)
        self.lines.append(f"{name}_count{pairs} {count}\n")
        self.lines.append(f"{name}_sum{pairs} {format_number(histogram.sum)}\n")

    def header(self, text_format: Format) -> str:
        name = self.name
        if text_format is Format.OPENMETRICS and self.kind is Kind.COUNTER:
            name = name.removesuffix(_TOTAL)
        documentation = self.documentation.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {name} {documentation}\n# TYPE {name} {self.kind.value}\n"


class Exposition:
    """Everything that one scrape returns."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self._texts: dict[Format, bytes] = {}

    def counter(self, name: str, documentation: str) -> Family:
        return self._family(name, Kind.COUNTER, documentation)

    def gauge(self, name: str, documentation: str) -> Family:
        return self._family(name, Kind.GAUGE, documentation)

    def histogram(self, name: str, documentation: str) -> Family:
        return self._family(name, Kind.HISTOGRAM, documentation)

    def _family(self, name: str, kind: Kind, documentation: str) -> Family:
        if name in self.families:
            raise ValueError(f"{name} is collected twice")
        family = self.families[name] = Family(name, kind, documentation)
        return family

    def text(self, text_format: Format) -> bytes:
        """Returns the families that have samples; they must not change any more."""
        if text_format not in self._texts:
            self._texts[text_format] = self._render(text_format)
        return self._texts[text_format]

    def _render(self, text_format: Format) -> bytes:
        parts = list(self._parts(text_format))
        if text_format is Format.OPENMETRICS:
            parts.append("# EOF\n")
        return "".join(parts).encode()

    def _parts(self, text_format: Format) -> Iterable[str]:
        for family in self.families.values():
            if family.lines:
                yield family.header(text_format)
                yield from family.lines
