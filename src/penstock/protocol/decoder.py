"""Compiles the decoder of one message version.

The result is one function that makes no calls in the common case: nested structs are inlined,
adjacent fixed-size fields are read together, and the first byte of a length or of a tag section is
read with the fixed-size fields before it. Only varints of several bytes, tagged fields and errors
call functions. All invalid bytes raise ProtocolError:

- reading beyond the end raises IndexError or struct.error, which is caught around the function;
- slicing does not raise, so each length is compared with the remaining bytes;
- a count is compared with the smallest size of that many elements before the first one is created.

The function takes the number of array elements and tagged fields that it may decode, and raises
TooManyElementsError as soon as the counts exceed it. So a caller decodes small messages at once,
and passes large ones to a thread, or refuses them.
"""

import struct
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from penstock.core.errors import ProtocolError
from penstock.protocol import primitives
from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.schema import (
    Array,
    Field,
    WireType,
    fields_of,
    is_fixed,
    size_of_fixed,
    smallest_size,
)
from penstock.protocol.source import Source

M = TypeVar("M", bound=Message)
M_co = TypeVar("M_co", bound=Message, covariant=True)

UNLIMITED: Final = 2**33
"""More elements than any message can have."""


def decoder_source(cls: type[Message], version: int) -> Source:
    """Returns the source of the decoder of `cls` at `version`."""
    return _DecoderSource(cls, version).write()


class Decoder(Protocol[M_co]):
    """Decodes the message at `position` of a view; returns it and the position after it.

    Raises TooManyElementsError if its arrays have more than `room` elements together.
    """

    def __call__(
        self, view: memoryview, position: int, room: int = UNLIMITED, /
    ) -> tuple[M_co, int]: ...


def compile_decoder(cls: type[M], version: int) -> Decoder[M]:
    """Returns the function that decodes `cls` at `version`."""
    return cast("Decoder[M]", decoder_source(cls, version).build("decode"))


class _DecoderSource:
    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._flexible = version in cls.INFO.flexible
        self._title = f"{cls.__name__} v{version}"
        self._source = Source(f"decoder of {self._title}")
        # Fixed-size reads that are not written yet, and the lines that must follow them.
        self._run: list[tuple[str, str]] = []
        self._after: list[str] = []

    def write(self) -> Source:
        out = self._source
        truncated = self._helper(_truncated)
        not_text = self._helper(_not_text)
        ends = out.constant("ENDS", (IndexError, struct.error))
        with out.block(f"def decode(view, p, room={UNLIMITED}):"):
            out.line("size = len(view)")
            with out.block("try:"):
                message = self._struct(self._cls, self._title)
                self._flush()
                out.line(f"return {message}, p")
            with out.block(f"except {ends}:"):
                out.line(f"raise {truncated}({self._title!r}, size) from None")
            with out.block("except UnicodeDecodeError:"):
                out.line(f"raise {not_text}({self._title!r}, p) from None")
        return out

    def _struct(self, cls: type[Struct], where: str) -> str:
        """Reads a struct; returns the expression that creates it, valid after the next flush."""
        values: list[str | None] = []
        tagged: list[tuple[Field, str]] = []
        for field in fields_of(cls):
            if self._version not in field.versions:
                values.append(None)
            elif field.tag is not None:
                target = self._source.fresh(field.name)
                tagged.append((field, target))
                values.append(target)
            else:
                values.append(self._field(field, f"{where} {field.name}"))
        if self._flexible:
            self._tag_section(tagged, where)
        while values and values[-1] is None:
            values.pop()
        arguments = (
            self._source.default(field) if value is None else value
            for field, value in zip(fields_of(cls), values, strict=False)
        )
        return f"{self._source.constant(cls.__name__, cls)}({', '.join(arguments)})"

    def _field(self, field: Field, where: str) -> str:
        nullable = self._version in field.nullable
        flexible = self._flexible and field.flexible
        if isinstance(field.type, type):
            return self._nested(field, nullable, where)
        return self._value(field.name, field.type, nullable, flexible, where)

    def _nested(self, field: Field, nullable: bool, where: str) -> str:
        assert isinstance(field.type, type)
        if not nullable:
            return self._struct(field.type, where)
        out = self._source
        # A nullable struct starts with a varint if it is tagged, otherwise with a signed byte.
        present = out.fresh("present")
        self._read("b", present)
        self._flush()
        target = out.fresh(field.name)
        with out.block(f"if {present} {'> 0' if field.tag is not None else '>= 0'}:"):
            made = self._struct(field.type, where)
            self._flush()
            out.line(f"{target} = {made}")
        with out.block("else:"):
            out.line(f"{target} = None")
        return target

    def _value(
        self, name: str, wire_type: WireType, nullable: bool, flexible: bool, where: str
    ) -> str:
        """Reads a value that is not a struct; returns the name of its variable."""
        out = self._source
        target = out.fresh(name)
        if isinstance(wire_type, Scalar) and is_fixed(wire_type):
            self._read(wire_type.value, target)
            if wire_type is Scalar.UUID:
                uuids = out.constant("UUIDS", primitives.UUIDS)
                self._after.append(f"{target} = {uuids}[{target}]")
            return target
        length = out.fresh("n")
        self._length(length, wire_type, flexible, where)
        if nullable:
            with out.block(f"if {length}:" if flexible else f"if {length} >= 0:"):
                self._body(target, length, wire_type, flexible, where)
            with out.block("else:"):
                out.line(f"{target} = None")
        else:
            self._body(target, length, wire_type, flexible, where)
        return target

    def _length(self, target: str, wire_type: WireType, flexible: bool, where: str) -> None:
        """Reads a length or count. A compact one stays as sent: plus one, with 0 for null."""
        out = self._source
        if not flexible:
            self._read("h" if wire_type is Scalar.STRING else "i", target)
            self._flush()
            return
        self._read("B", target)
        self._flush()
        with out.block(f"if {target} > 127:"):
            out.line(f"{target}, p = {self._helper(primitives.read_uvarint)}(view, p, {target})")
            if wire_type is Scalar.STRING:
                with out.block(f"if {target} > {primitives.MAX_STRING + 1}:"):
                    long_string = self._helper(primitives.long_string)
                    out.line(f"raise {long_string}({where!r}, {target} - 1)")

    def _body(
        self, target: str, length: str, wire_type: WireType, flexible: bool, where: str
    ) -> None:
        """Reads what follows the length."""
        if isinstance(wire_type, Array):
            self._array(target, length, wire_type.element, flexible, where)
            return
        out = self._source
        end = out.fresh("end")
        out.line(f"{end} = p + {length}{' - 1' if flexible else ''}")
        with out.block(f"if not p <= {end} <= size:"):
            out.line(f"raise {self._helper(primitives.bad_length)}({where!r}, {end} - p, size - p)")
        if wire_type is Scalar.STRING:
            out.line(f"{target} = view[p:{end}].tobytes().decode()")
        elif wire_type is Scalar.BYTES:
            out.line(f"{target} = view[p:{end}].tobytes()")
        else:
            out.line(f"{target} = view[p:{end}]")
        out.line(f"p = {end}")

    def _array(
        self,
        target: str,
        count: str,
        element: Scalar | type[Struct],
        flexible: bool,
        where: str,
    ) -> None:
        out = self._source
        smallest = smallest_size(element, self._version, flexible)
        if smallest == 0:
            raise TypeError(f"{where}: empty elements would leave the count unbounded")
        if flexible:
            out.line(f"{count} -= 1")
        with out.block(f"if not 0 <= {count} * {smallest} <= size - p:"):
            out.line(f"raise {self._helper(primitives.bad_count)}({where!r}, {count}, size - p)")
        self._take_room(count, where)
        if isinstance(element, Scalar) and is_fixed(element):
            self._fixed_array(target, count, element)
            return
        out.line(f"{target} = []")
        # Most arrays are short, and counting down starts faster than a range.
        with out.block(f"while {count}:"):
            out.line(f"{count} -= 1")
            if isinstance(element, type):
                made = self._struct(element, where)
            else:
                made = self._value("item", element, False, flexible, where)
            self._flush()
            out.line(f"{target}.append({made})")

    def _fixed_array(self, target: str, count: str, element: Scalar) -> None:
        out = self._source
        size = size_of_fixed(element)
        if element is Scalar.UUID:
            uuids = out.constant("UUIDS", primitives.UUIDS)
            starts = f"range(p, p + {count} * {size}, {size})"
            out.line(f"{target} = [{uuids}[bytes(view[at : at + {size}])] for at in {starts}]")
        else:
            readers = out.constant(f"read_{element.name}", primitives.ARRAY_READERS[element.value])
            out.line(f"{target} = list({readers}[{count}](view, p))")
        out.line(f"p += {count} * {size}")

    def _tag_section(self, tagged: list[tuple[Field, str]], where: str) -> None:
        out = self._source
        count = out.fresh("tags")
        self._read("B", count)
        self._flush()
        if not tagged:
            with out.block(f"if {count}:"):
                skip = self._helper(primitives.skip_tagged_fields)
                out.line(f"p, room = {skip}(view, p, {count}, size, room)")
            return
        for field, target in tagged:
            out.line(f"{target} = {out.default(field)}")
        with out.block(f"if {count}:"):
            with out.block(f"if {count} > 127:"):
                out.line(f"{count}, p = {self._helper(primitives.read_uvarint)}(view, p, {count})")
            self._take_room(count, f"{where} tagged fields")
            with out.block(f"for _ in range({count}):"):
                self._tagged_field(tagged, where)

    def _tagged_field(self, tagged: list[tuple[Field, str]], where: str) -> None:
        out = self._source
        tag, length, start = out.fresh("tag"), out.fresh("length"), out.fresh("start")
        out.line(f"{tag}, {length}, p = {self._helper(primitives.read_tag)}(view, p, size)")
        out.line(f"{start} = p")
        word = "if"
        for field, target in tagged:
            with out.block(f"{word} {tag} == {field.tag}:"):
                made = self._field(field, f"{where} {field.name}")
                self._flush()
                out.line(f"{target} = {made}")
            word = "elif"
        with out.block("else:"):
            out.line(f"p += {length}")
        with out.block(f"if p - {start} != {length}:"):
            bad_tag = self._helper(primitives.bad_tag)
            out.line(f'raise {bad_tag}(f"{where} tag {{{tag}}}", {length}, p - {start})')

    def _take_room(self, count: str, where: str) -> None:
        """Counts elements before the first of them is created."""
        out = self._source
        out.line(f"room -= {count}")
        with out.block("if room < 0:"):
            out.line(f"raise {self._helper(primitives.too_many)}({where!r}, {count}, room)")

    def _read(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def _flush(self) -> None:
        """Writes the pending fixed-size reads as one."""
        out = self._source
        if self._run:
            codes = "".join(code for code, _ in self._run)
            targets = ", ".join(target for _, target in self._run)
            if codes == "B":
                out.line(f"{targets} = view[p]")
            else:
                comma = "," if len(self._run) == 1 else ""
                out.line(f"{targets}{comma} = {out.layout('unpack_from', codes)}(view, p)")
            out.line(f"p += {struct.calcsize('>' + codes)}")
        for line in self._after:
            out.line(line)
        self._run.clear()
        self._after.clear()

    def _helper(self, function: Callable[..., object]) -> str:
        return self._source.constant(function.__name__, function)


def _truncated(title: str, size: int) -> ProtocolError:
    return ProtocolError(f"{title} is incomplete: its {size} bytes end inside a field")


def _not_text(title: str, position: int) -> ProtocolError:
    return ProtocolError(f"{title} has a string that is not UTF-8, at byte {position}")
