"""The CRT metadata module as an LLVM module, from the same description as ``metadata.c.j2``.

Pointers are opaque. The layout of the structs is that of ``crt/model.h`` and ``tvm/runtime/metadata_types.h``
under the target's data layout, so that the C runtime can read them.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from crtgen.boards.core import Core
from crtgen.compiler.codegen.llvm_target import machine, triple
from crtgen.compiler.codegen.metadata import (
    METADATA_VERSION,
    MetadataModelView,
    MetadataView,
    ParameterLookup,
    TensorInfo,
)
from crtgen.compiler.codegen.views import dl_numbers

__all__ = ["metadata_module"]

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_PTR = ir.PointerType()
_PACKED = ir.FunctionType(_I32, [_PTR, _PTR, _I32, _PTR, _PTR, _PTR])
_DTYPE = ir.LiteralStructType([_I8, _I8, _I16])
_ARGUMENT = ir.LiteralStructType([_I32, _DTYPE])
_TENSOR = ir.LiteralStructType([_PTR, _PTR, _I64, _DTYPE])
_METADATA = ir.LiteralStructType([_I64, *[_PTR, _I64] * 4, _PTR])
_PARAM = ir.LiteralStructType([_I64, _PTR, _I32])
_NULL = ir.Constant(_PTR, None)

_INT, _HANDLE, _NULLPTR, _STR = 0, 3, 4, 11
"""Type codes of packed arguments."""
# ``CRT_ERR_NAME`` of ``crt/error.h``.
_ERR_NAME = -2


def metadata_module(view: MetadataView, core: Core) -> ir.Module:
    """Return the module for a core. Everything is constant; functions and data of other files are
    declared.
    """
    module = ir.Module(name="crt_metadata")
    module.triple = triple(core)
    module.data_layout = str(machine(core).target_data)
    builder = _ModuleBuilder(module)
    for function in view.external:
        ir.Function(module, _PACKED, function.symbol)
    table = builder.params(view)
    for lookup in view.lookups:
        builder.lookup(lookup, table)
    if view.ambiguous:
        builder.ambiguous(view.ambiguous)
    if view.has_nop:
        builder.leaving("nothing", _NULLPTR)
    for model in view.models:
        builder.model(model)
    builder.registry(view)
    builder.signatures(view)
    builder.models(view.models)
    return module


class _ModuleBuilder:
    def __init__(self, module: ir.Module) -> None:
        self.module = module

    def constant(self, name: str, value: Any, *, internal: bool = True) -> Any:
        variable = ir.GlobalVariable(self.module, value.type, name)
        variable.initializer = value
        variable.global_constant = True
        variable.linkage = "internal" if internal else ""
        return variable

    def array(self, name: str, kind: Any, items: Sequence[Any]) -> Any:
        # A constant array; without items a null pointer, as an empty array has no place.
        if not items:
            return _NULL
        return self.constant(name, ir.Constant(ir.ArrayType(kind, len(items)), list(items)))

    def text(self, name: str, data: bytes) -> Any:
        content = bytearray(data)
        return self.constant(name, ir.Constant(ir.ArrayType(_I8, len(content)), content))

    def function(self, symbol: str, *, internal: bool = True) -> Any:
        function = ir.Function(self.module, _PACKED, symbol)
        function.linkage = "internal" if internal else ""
        function.attributes.add("nounwind")
        return function

    def leaving(self, symbol: str, code: int, status: int = 0, value: Any = None) -> None:
        # A packed function that returns the same each time.
        function = self.function(symbol)
        at = ir.IRBuilder(function.append_basic_block())
        if value is not None:
            at.store(value, function.args[3])
        _leave(at, function.args[4], code, status)

    def ambiguous(self, why: str) -> None:
        # The function that says why parameters cannot be looked up without the name of a model.
        text = self.text("ambiguous", why.encode() + b"\0")
        self.leaving("lookup_in_several_models", _STR, _ERR_NAME, text)

    def registry(self, view: MetadataView) -> None:
        # The name table, the functions in its order, and the entry that everything starts at.
        names = self.text("names", view.table)
        pointers = [self.module.globals[f.symbol] for f in view.functions] or [_NULL]
        functions = self.array("functions", _PTR, pointers)
        registry = self.constant("registry", ir.Constant.literal_struct([names, functions]))
        module = self.constant("module", ir.Constant.literal_struct([registry]))
        entry = ir.Function(self.module, ir.FunctionType(_PTR, []), "TVMSystemLibEntryPoint")
        entry.attributes.add("nounwind")
        ir.IRBuilder(entry.append_basic_block()).ret(module)

    def signatures(self, view: MetadataView) -> None:
        rows = [
            ir.Constant(
                _ARGUMENT, [_I32(a.nbytes), ir.Constant(_DTYPE, [_I8(a.code), _I8(a.bits), _I16(a.lanes)])]
            )
            for a in view.arguments
        ] or [ir.Constant(_ARGUMENT, None)]
        arguments = self.array("arguments", _ARGUMENT, rows)
        calls = self.array("signatures", _I16, [_I16(n) for n in view.signatures or (0,)])
        self.constant("crt_signatures", ir.Constant.literal_struct([arguments, calls]), internal=False)

    def models(self, models: Sequence[MetadataModelView]) -> None:
        found = [ir.GlobalVariable(self.module, _PTR, f"{m.name}_model") for m in models] or [_NULL]
        for variable in found if models else ():
            variable.global_constant = True
        pointers = ir.Constant(ir.ArrayType(_PTR, len(found)), found)
        self.constant("crt_models", pointers, internal=False)
        self.constant("crt_num_models", ir.Constant(_I16, len(models)), internal=False)

    def model(self, model: MetadataModelView) -> None:
        # A model's ``TVMMetadata`` and the function that returns it.
        fields: list[Any] = [ir.Constant(_I64, METADATA_VERSION)]
        for role, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
            infos = [self.tensor(f"{model.name}_{role}_{i}", t) for i, t in enumerate(tensors)]
            array = self.array(f"{model.name}_{role}", _TENSOR, infos)
            fields += [array, ir.Constant(_I64, len(tensors))]
        fields += [_NULL, ir.Constant(_I64, 0)] * 2
        fields.append(self.text(f"{model.name}_name", model.module.encode() + b"\0"))
        metadata = self.constant(f"{model.name}_metadata", ir.Constant(_METADATA, fields))
        self.leaving(f"{model.name}_get_c_metadata", _HANDLE, value=metadata)

    def tensor(self, name: str, tensor: TensorInfo) -> Any:
        shape = self.array(f"{name}_shape", _I64, [_I64(d) for d in tensor.shape])
        code, bits, lanes = dl_numbers(tensor.dtype)
        dtype = ir.Constant(_DTYPE, [_I8(code), _I8(bits), _I16(lanes)])
        text = self.text(f"{name}_name", tensor.name.encode() + b"\0")
        return ir.Constant(_TENSOR, [text, shape, _I64(len(tensor.shape)), dtype])

    def params(self, view: MetadataView) -> Any:
        rows = []
        for param in view.params:
            data = ir.GlobalVariable(self.module, ir.ArrayType(_I8, param.nbytes), param.symbol)
            data.global_constant = True
            rows.append(ir.Constant(_PARAM, [_I64(param.sid), data, _I32(param.nbytes)]))
        table = self.array("linked_params", _PARAM, rows)
        self.constant("crt_params", ir.Constant.literal_struct([table, _I32(len(rows))]), internal=False)
        return table

    def lookup(self, lookup: ParameterLookup, table: Any) -> None:
        # The address of the constant with the storage id in argument 0, or null, by a linear search.
        function = self.function(lookup.symbol)
        args, codes, count, ret, ret_code, _ = function.args
        start, typed, loop, step, hit, miss = (function.append_basic_block() for _ in range(6))

        at = ir.IRBuilder(start)
        at.cbranch(at.icmp_signed("<", count, _I32(1)), miss, typed)
        at = ir.IRBuilder(typed)
        wanted = at.load(args, typ=_I64)
        at.cbranch(at.icmp_signed("==", at.load(codes, typ=_I32), _I32(_INT)), loop, miss)
        at = ir.IRBuilder(loop)
        index = at.phi(_I32)
        index.add_incoming(_I32(lookup.start), typed)
        sid = at.load(at.gep(table, [index, _I32(0)], source_etype=_PARAM), typ=_I64)
        at.cbranch(at.icmp_signed("==", sid, wanted), hit, step)
        at = ir.IRBuilder(step)
        following = at.add(index, _I32(1))
        index.add_incoming(following, step)
        at.cbranch(at.icmp_unsigned("<", following, _I32(lookup.start + lookup.count)), loop, miss)
        at = ir.IRBuilder(hit)
        at.store(at.load(at.gep(table, [index, _I32(1)], source_etype=_PARAM), typ=_PTR), ret)
        _leave(at, ret_code, _HANDLE)
        at = ir.IRBuilder(miss)
        at.store(_NULL, ret)
        _leave(at, ret_code, _NULLPTR)


def _leave(at: ir.IRBuilder, ret_code: Any, code: int, status: int = 0) -> None:
    at.store(_I32(code), ret_code)
    at.ret(_I32(status))
