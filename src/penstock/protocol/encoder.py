"""Compiles the encoder of one message version.

The result is one function that collects small pieces of bytes and joins them. Nested structs are
inlined; fixed-size fields, the length that follows them and the zero of an empty tag section are
packed together. Record batches are not joined but become separate parts, so that the batches of a
Fetch response can be sent straight from their file.

The function takes the number of array elements that it may encode, as a decoder does; arrays of
integers are not counted.

Values are not checked one by one. If `struct` refuses one, the message is searched for the field at
fault.
"""

import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

from penstock.core.errors import UnsupportedVersionError
from penstock.protocol import primitives
from penstock.protocol.decoder import UNLIMITED
from penstock.protocol.diagnosis import explain, shortened
from penstock.protocol.fields import ZERO_UUID, Message, RecordsRange, Scalar, Struct
from penstock.protocol.schema import Array, Field, WireType, fields_of, is_fixed
from penstock.protocol.source import Source

M = TypeVar("M", bound=Message)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)
Part = bytes | bytearray | memoryview | RecordsRange

_MAX_PIECES = 4096
_PACKED = frozenset({Scalar.INT8, Scalar.INT16, Scalar.INT32, Scalar.INT64})
"""Arrays of these are packed by one call, so they are not counted: that would add a fifth to the
time of a Metadata response."""
_NOT_ENCODABLE = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


def encoder_source(cls: type[Message], version: int) -> Source:
    """Returns the source of the encoder of `cls` at `version`."""
    return _EncoderSource(cls, version).write()


class Encoder(Protocol[M_contra]):
    """Returns the bytes of a message, in parts around the records.

    Raises TooManyElementsError if its arrays have more than `room` elements together.
    """

    def __call__(self, message: M_contra, room: int = UNLIMITED, /) -> list[Part]: ...


def compile_encoder(cls: type[M], version: int) -> Encoder[M]:
    """Returns the function that encodes `cls` at `version`."""
    return cast("Encoder[M]", encoder_source(cls, version).build("encode"))


class _EncoderSource:
    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._flexible = version in cls.INFO.flexible
        self._title = f"{cls.__name__} v{version}"
        self._source = Source(f"encoder of {self._title}")
        # Fixed-size values that are not written yet: code and expression; `x` is a zero byte.
        self._run: list[tuple[str, str]] = []
        self._in_tagged_field = False

    def write(self) -> Source:
        out = self._source
        errors = out.constant("NOT_ENCODABLE", _NOT_ENCODABLE)
        with out.block(f"def encode(m, room={UNLIMITED}):"):
            with out.block("try:"):
                out.line("parts = []")
                out.line("o = []")
                self._struct(self._cls, "m", self._title)
                self._flush()
                out.line('parts.append(b"".join(o))')
                out.line("return parts")
            with out.block(f"except {errors} as error:"):
                explained = f"{self._helper(explain)}(m, {self._version}, error)"
                out.line(f"raise {explained} from error")
        return out

    def _struct(self, cls: type[Struct], name: str, where: str) -> None:
        tagged: list[Field] = []
        for field in fields_of(cls):
            here = f"{where} {field.name}"
            if self._version not in field.versions:
                if not field.ignorable:
                    self._refuse(field, f"{name}.{field.name}", here)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self._field(field, f"{name}.{field.name}", here)
        if self._flexible:
            self._tag_section(sorted(tagged, key=lambda field: field.tag or 0), name, where)

    def _refuse(self, field: Field, expression: str, where: str) -> None:
        with self._source.block(f"if {self._differs(field, expression)}:"):
            self._source.line(f"raise {self._helper(_lacks_field)}({where!r}, {expression})")

    def _differs(self, field: Field, expression: str) -> str:
        """A condition: the field holds something other than its default."""
        default = field.default
        if default is None:
            return f"{expression} is not None"
        if isinstance(field.type, Array):
            if field.nullable.low <= field.nullable.high:
                return f"({expression} is None or len({expression}))"
            return f"len({expression})"
        if isinstance(default, UUID) and default == ZERO_UUID:
            return f"{expression}.int"
        if isinstance(default, Struct):
            return f"{expression} != {self._source.constant('default', default)}"
        return f"{expression} != {default!r}"

    def _field(self, field: Field, expression: str, where: str) -> None:
        nullable = self._version in field.nullable
        flexible = self._flexible and field.flexible
        if isinstance(field.type, type):
            self._nested(field, expression, nullable, where)
        else:
            self._value(field.name, field.type, expression, nullable, flexible, where)

    def _nested(self, field: Field, expression: str, nullable: bool, where: str) -> None:
        assert isinstance(field.type, type)
        out = self._source
        name = out.fresh(field.name)
        out.line(f"{name} = {expression}")
        if not nullable:
            self._struct(field.type, name, where)
            return
        self._flush()
        with out.block(f"if {name} is None:"):
            # The mark of a null struct is a varint if it is tagged, otherwise a signed byte.
            null = b"\0" if field.tag is not None else b"\xff"
            out.line(f"o.append({null!r})")
        with out.block("else:"):
            self._run.append(("b", "1"))
            self._struct(field.type, name, where)
            self._flush()

    def _value(
        self,
        name: str,
        wire_type: WireType,
        expression: str,
        nullable: bool,
        flexible: bool,
        where: str,
    ) -> None:
        """Write a value that is no struct."""
        if isinstance(wire_type, Scalar) and is_fixed(wire_type):
            if wire_type is Scalar.UUID:
                expression = f'{expression}.int.to_bytes(16, "big")'
            self._run.append((wire_type.value, expression))
            return
        out = self._source
        value, length = out.fresh(name), out.fresh("n")
        out.line(f"{value} = {expression}")
        if nullable:
            with out.block(f"if {value} is None:"):
                empty: object = () if isinstance(wire_type, Array) else b""
                out.line(f"{value} = {empty!r}")
                out.line(f"{length} = {0 if flexible else -1}")
            with out.block("else:"):
                self._measure(value, length, wire_type, flexible)
        else:
            self._measure(value, length, wire_type, flexible)
        self._length(length, wire_type, flexible, where)
        self._body(value, length, wire_type, flexible, where)

    def _measure(self, value: str, length: str, wire_type: WireType, flexible: bool) -> None:
        out = self._source
        one_more = " + 1" if flexible else ""
        if wire_type is Scalar.STRING:
            out.line(f"{value} = {value}.encode()")
        if wire_type is Scalar.RECORDS:
            size_of = self._helper(primitives.size_of)
            out.line(f"{length} = {size_of}({value}){one_more}")
        else:
            out.line(f"{length} = len({value}){one_more}")

    def _length(self, length: str, wire_type: WireType, flexible: bool, where: str) -> None:
        """Write the length, together with the fixed fields before it."""
        out = self._source
        if not flexible:
            self._run.append(("h" if wire_type is Scalar.STRING else "i", length))
            self._flush()
            return
        uvarints = out.constant("UVARINTS", primitives.UVARINTS)
        if wire_type is Scalar.STRING:
            with out.block(f"if {length} > {primitives.MAX_STRING + 1}:"):
                long_string = self._helper(primitives.long_string)
                out.line(f"raise {long_string}({where!r}, {length} - 1)")
        if not self._run:
            out.line(f"o.append({uvarints}[{length}])")
            return
        before = self._packed()
        self._run.append(("B", length))
        with out.block(f"if {length} < 128:"):
            self._flush()
        with out.block("else:"):
            out.line(f"o += {before}, {uvarints}[{length}]")

    def _body(
        self, value: str, length: str, wire_type: WireType, flexible: bool, where: str
    ) -> None:
        """Writes what follows the length."""
        out = self._source
        if isinstance(wire_type, Array):
            self._array(value, wire_type.element, flexible, where)
        elif wire_type is Scalar.RECORDS:
            with out.block(f"if {length} > {1 if flexible else 0}:"):
                out.line('parts.append(b"".join(o))')
                out.line(f"parts.append({value})")
                out.line("o = []")
        else:
            out.line(f"o.append({value})")

    def _array(
        self, value: str, element: Scalar | type[Struct], flexible: bool, where: str
    ) -> None:
        out = self._source
        if element not in _PACKED:
            out.line(f"room -= len({value})")
            with out.block("if room < 0:"):
                too_many = self._helper(primitives.too_many)
                out.line(f"raise {too_many}({where!r}, len({value}), room)")
        if element is Scalar.UUID:
            out.line(f'o.append(b"".join([item.int.to_bytes(16, "big") for item in {value}]))')
        elif isinstance(element, Scalar) and is_fixed(element):
            writers = out.constant(f"write_{element.name}", primitives.ARRAY_WRITERS[element.value])
            out.line(f"o.append({writers}[len({value})](*{value}))")
        else:
            item = out.fresh("item")
            with out.block(f"for {item} in {value}:"):
                if isinstance(element, type):
                    self._struct(element, item, where)
                else:
                    self._value("item", element, item, False, flexible, where)
                self._flush()
                if not self._in_tagged_field:
                    # Joining and freeing a million pieces at once would stop all threads.
                    with out.block(f"if len(o) > {_MAX_PIECES}:"):
                        out.line('parts.append(b"".join(o))')
                        out.line("o = []")

    def _tag_section(self, tagged: list[Field], name: str, where: str) -> None:
        if not tagged:
            self._run.append(("x", ""))
            return
        out = self._source
        before = list(self._run)
        present = [self._differs(field, f"{name}.{field.name}") for field in tagged]
        with out.block(f"if {' or '.join(present)}:"):
            count = " + ".join(f"bool({condition})" for condition in present)
            self._run.append(("B", count))
            self._flush()
            for field, condition in zip(tagged, present, strict=True):
                with out.block(f"if {condition}:"):
                    self._tagged_field(field, f"{name}.{field.name}", where)
        with out.block("else:"):
            self._run = [*before, ("x", "")]
            self._flush()

    def _tagged_field(self, field: Field, expression: str, where: str) -> None:
        out = self._source
        outer = out.fresh("outer")
        out.line(f"{outer} = o")
        out.line("o = []")
        is_nested, self._in_tagged_field = self._in_tagged_field, True
        self._field(field, expression, f"{where} {field.name}")
        self._flush()
        self._in_tagged_field = is_nested
        uvarints = out.constant("UVARINTS", primitives.UVARINTS)
        out.line('value = b"".join(o)')
        out.line(f"o = {outer}")
        out.line(f"o += {primitives.UVARINTS[field.tag or 0]!r}, {uvarints}[len(value)], value")

    def _packed(self) -> str:
        """Returns an expression for the pending values; empty if there are none."""
        codes = "".join(code for code, _ in self._run)
        if not codes.strip("x"):
            return repr(bytes(len(codes))) if codes else ""
        arguments = ", ".join(expression for code, expression in self._run if code != "x")
        return f"{self._source.layout('pack', codes)}({arguments})"

    def _flush(self) -> None:
        if self._run:
            self._source.line(f"o.append({self._packed()})")
            self._run.clear()

    def _helper(self, function: Callable[..., Any]) -> str:
        return self._source.constant(function.__name__, function)


def _lacks_field(where: str, value: object) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{where} is {shortened(value)}, but this version has no such field",
        remedy="use a later version, or leave the field at its default",
    )
