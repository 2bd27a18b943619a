"""Draws docs/diagrams/*.txt as SVG files beside them: `make generate`.

A diagram is a column of rows. A line of the text is one of these:

    = Title of the diagram
    [name] What it is | [name] What it is        a row of boxes, side by side
    v label ^ label                              arrows from the row above to the one below and back

The drawing depends on nothing but the text, so that a test can tell whether a committed SVG is up
to date.
"""

import re
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

DIAGRAMS = Path(__file__).resolve().parent.parent / "docs" / "diagrams"

WIDTH = 960
MARGIN = 20
GAP = 12
LINE_HEIGHT = 17
CHARACTER_WIDTH = 6.6
ARROW_HEIGHT = 40

STYLE = (
    "text{font:13px sans-serif;fill:#1b2733}.title{font-size:16px;font-weight:bold}"
    ".name{font-family:monospace;font-weight:bold}.label{font-size:12px;fill:#51606e}"
    "rect{fill:#eef3f8;stroke:#7a8fa3}path{stroke:#7a8fa3;stroke-width:1.5;fill:none}"
)


class Box(NamedTuple):
    name: str
    text: str


class Arrows(NamedTuple):
    down: str
    up: str


class Diagram(NamedTuple):
    title: str
    rows: list[list[Box] | Arrows]


def parse(text: str) -> Diagram:
    """Reads the text of a diagram; raises ValueError with the line that cannot be read."""
    title = ""
    rows: list[list[Box] | Arrows] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        boxes = [re.fullmatch(r"\[([^]]+)\] (.+)", part.strip()) for part in line.split(" | ")]
        arrows = re.fullmatch(r"v (.+?)(?: \^ (.+))?", line)
        if line.startswith("= "):
            title = line[2:]
        elif arrows:
            rows.append(Arrows(arrows[1], arrows[2] or ""))
        elif all(boxes):
            rows.append([Box(box[1], box[2]) for box in boxes if box])
        else:
            raise ValueError(f"line {number} is neither a title, a row of boxes nor arrows: {line}")
    return Diagram(title, rows)


def render(diagram: Diagram) -> str:
    """Returns the diagram as the text of an SVG file."""
    top = MARGIN + 30
    shapes = [_text(MARGIN, MARGIN + 12, diagram.title, "title")]
    for row in diagram.rows:
        if isinstance(row, Arrows):
            shapes += _draw_arrows(row, top - GAP)
            top += ARROW_HEIGHT - GAP
        else:
            drawn, height = _draw_boxes(row, top)
            shapes += drawn
            top += height + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + MARGIN - GAP}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *shapes, "</svg>", ""])


def _draw_boxes(row: list[Box], top: int) -> tuple[list[str], int]:
    width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) // len(row)
    wrapped = [textwrap.wrap(box.text, int((width - 24) / CHARACTER_WIDTH)) for box in row]
    height = (max(map(len, wrapped)) + 1) * LINE_HEIGHT + 14
    shapes: list[str] = []
    for column, (box, lines) in enumerate(zip(row, wrapped, strict=True)):
        left = MARGIN + column * (width + GAP)
        shapes.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="5"/>')
        shapes.append(_text(left + 12, top + 20, box.name, "name"))
        for index, line in enumerate(lines, 1):
            shapes.append(_text(left + 12, top + 20 + index * LINE_HEIGHT, line, "what"))
    return shapes, height


def _draw_arrows(arrows: Arrows, top: int) -> Iterator[str]:
    bottom = top + ARROW_HEIGHT
    middle = top + ARROW_HEIGHT // 2 + 4
    left, right = WIDTH // 4, WIDTH * 5 // 8
    yield f'<path d="M{left} {top + 2}V{bottom - 2}m-5 -8l5 8l5 -8"/>'
    yield _text(left + 12, middle, arrows.down, "label")
    if arrows.up:
        yield f'<path d="M{right} {bottom - 2}V{top + 2}m-5 8l5 -8l5 8"/>'
        yield _text(right + 12, middle, arrows.up, "label")


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" class="{style}">{escape(text)}</text>'


def main() -> None:
    for source in sorted(DIAGRAMS.glob("*.txt")):
        source.with_suffix(".svg").write_text(render(parse(source.read_text())))


if __name__ == "__main__":
    main()
