"""A Protobuf message with fields of all kinds, defined without a compiler."""

from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from penstock.spark.decode.formats.protobuf_schema import find_message

_ONE = FieldDescriptorProto.LABEL_OPTIONAL
_MANY = FieldDescriptorProto.LABEL_REPEATED
_KINDS = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "enum": FieldDescriptorProto.TYPE_ENUM,
    "message": FieldDescriptorProto.TYPE_MESSAGE,
}


def descriptors() -> bytes:
    """Returns descriptors of `shop.Order`, `shop.Order.Line`, `shop.Tree` and `shop.Nothing`."""
    file = FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(["RED", "BLUE"]):
        color.value.add(name=name, number=number)
    _order(file.message_type.add(name="Order"))
    _field(file.message_type.add(name="Tree"), 1, "children", "message", ".shop.Tree", many=True)
    file.message_type.add(name="Nothing")
    descriptor_set = FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(descriptor_set.file.add())
    descriptor_set.file.append(file)
    return descriptor_set.SerializeToString()


def order_class() -> type[Message]:
    return GetMessageClass(find_message(descriptors(), "shop.Order"))


def _order(order: DescriptorProto) -> None:
    _field(order, 1, "id", "int64")
    _field(order, 2, "at", "message", ".google.protobuf.Timestamp")
    _field(order, 3, "color", "enum", ".shop.Color")
    _field(order, 4, "tags", "string", many=True)
    order.oneof_decl.add(name="_note")
    note = _field(order, 5, "note", "string")
    note.proto3_optional = True
    note.oneof_index = 0
    _field(order, 6, "big", "uint64")
    _field(order, 7, "rating", "message", ".google.protobuf.Int32Value")
    line = order.nested_type.add(name="Line")
    _field(line, 1, "sku", "string")
    _field(line, 2, "count", "uint32")
    _field(order, 8, "lines", "message", ".shop.Order.Line", many=True)
    entry = order.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    _field(entry, 1, "key", "string")
    _field(entry, 2, "value", "enum", ".shop.Color")
    _field(order, 9, "attributes", "message", ".shop.Order.AttributesEntry", many=True)
    _field(order, 10, "gift", "message", ".shop.Order.Line")


def _field(
    message: DescriptorProto,
    number: int,
    name: str,
    kind: str,
    type_name: str = "",
    *,
    many: bool = False,
) -> FieldDescriptorProto:
    label = _MANY if many else _ONE
    field = message.field.add(name=name, number=number, type=_KINDS[kind], label=label)
    if type_name:
        field.type_name = type_name
    return field
