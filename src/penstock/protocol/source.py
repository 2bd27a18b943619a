"""Generates Python source line by line, together with the objects that it refers to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Layout

from penstock.protocol.fields import Struct
from penstock.protocol.schema import Array, Field


class Source:
    """A function under construction: its lines, its constants and its unique names."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._lines: list[str] = []
        self._depth = 0
        self._constants: dict[str, object] = {}
        self._names: dict[int, str] = {}
        self._name_count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Returns an unused local name that starts with `stem`."""
        self._name_count += 1
        return f"{stem}_{self._name_count}"

    def constant(self, stem: str, value: object) -> str:
        """Adds `value` to the function's constants and returns its name."""
        name = self._names.get(id(value))
        if name is None:
            name = stem
            while name in self._constants:
                name += "_"
            self._names[id(value)] = name
            self._constants[name] = value
        return name

    def layout(self, method: str, codes: str) -> str:
        """Returns the name of a bound method of the `struct` layout for `codes`."""
        name = f"{method}_{codes.replace('?', 't')}"
        if name not in self._constants:
            self._constants[name] = getattr(Layout(">" + codes), method)
        return name

    def default(self, field: Field) -> str:
        """Returns an expression for the field's default; mutable defaults are created each time."""
        value = field.default
        if isinstance(field.type, Array) and value is not None:
            return "[]"
        if isinstance(value, Struct):
            return f"{self.constant(type(value).__name__, type(value))}()"
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return repr(value)
        return self.constant("default", value)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def build(self, name: str) -> Callable[..., object]:
        """Compiles the source and returns the function called `name`."""
        namespace = dict(self._constants)
        # The text is made from declarations alone: nothing from the wire gets into it.
        exec(compile(self.text(), f"<{self.title}>", "exec"), namespace)  # noqa: S102
        built = namespace[name]
        assert callable(built)
        return built
