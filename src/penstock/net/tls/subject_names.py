"""The subject of a certificate in the form that `ssl.principal.mapping.rules` and ACLs expect.

It is Java's RFC 2253 form: the most specific part first, nine attribute types by their keyword, any
other by its number with the value in hexadecimal.
"""

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_STRINGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""ASN.1's UTF8, Printable, T61, IA5, General and BMP strings. Java reads all of them as UTF-8."""
_EXPLICIT_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAME: Final = "2.5.29.17"


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a DER certificate that TLS has verified."""
    to_be_signed = next(_elements(next(_elements(certificate))[2]))[2]
    fields = list(_elements(to_be_signed))
    # An optional version, serial number, algorithm, issuer, validity, subject.
    subject = fields[5 if fields[0][0] == _EXPLICIT_VERSION else 4][2]
    names = ["+".join(map(_attribute, _values(part))) for part in _values(subject)]
    return ",".join(reversed(names))


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """Returns the subject alternative names of a DER certificate, each in DER."""
    to_be_signed = next(_elements(next(_elements(certificate))[2]))[2]
    for tag, _, content in _elements(to_be_signed):
        if tag != _EXTENSIONS:
            continue
        for _, _, extension in _elements(next(_elements(content))[2]):
            (_, _, identifier), *_, (_, _, value) = _elements(extension)
            if _dotted(identifier) == _ALTERNATIVE_NAME:
                return frozenset(name for _, name, _ in _elements(next(_elements(value))[2]))
    return frozenset()


def _values(data: bytes) -> list[bytes]:
    return [value for _, _, value in _elements(data)]


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the DER elements in `data`: tag, the whole element, its content."""
    position = 0
    while position < len(data):
        tag = data[position]
        length = data[position + 1]
        start = position + 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[start : start + size], "big")
            start += size
        end = start + length
        yield tag, data[position:end], data[start:end]
        position = end


def _attribute(data: bytes) -> str:
    (_, _, identifier), (tag, element, value) = _elements(data)
    number = _dotted(identifier)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or number}=#{element.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _dotted(identifier: bytes) -> str:
    numbers = []
    number = 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)  # the first two numbers are stored as one
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    if not inner:
        return "\\ " * len(text)
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" "))
    escaped = "".join(
        "\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in inner
    )
    return "\\ " * before + escaped + "\\ " * after
