"""A model small enough to write by hand: y = -x, saturated, on four int8 numbers."""

from collections.abc import Mapping

from crtgen.compiler.codegen.module import CModule, Interface, LayerInfo, ModelInfo, RegistryFunction
from crtgen.network.ir import DType, Quant

__all__ = ["METADATA", "toy"]

_MODEL = """\
#include <{name}.h>

static int8_t arena[8];
static const int64_t shape[] = {{1, 4}};
static const struct crt_tensor inputs[] = {{{{"x", arena, shape, 4, 2, {{kDLInt, 8, 1}}}}}};
static const struct crt_tensor outputs[] = {{{{"y", arena + 4, shape, 4, 2, {{kDLInt, 8, 1}}}}}};

static int32_t run(void)
{{
    {body}
    for (int i = 0; i < 4; i++)
        arena[4 + i] = arena[i] == -128 ? 127 : (int8_t)-arena[i];
    return 0;
}}

const struct crt_model {name}_model = {{"{name}", run, NULL, inputs, outputs, 1, 1, 1, 0, NULL, 0,
    NULL, NULL, NULL, 0}};
"""

_HEADER = """\
#include <crt/model.h>

extern const struct crt_model {name}_model;
"""

_METADATA = """\
#include <crt/registry.h>
#include <tvm/runtime/crt/module.h>

#include "toy.h"

static const TVMBackendPackedCFunc functions[1];
static const TVMFuncRegistry registry = {{"\\0\\0", functions}};
static const TVMModule library = {{&registry}};

const TVMModule *TVMSystemLibEntryPoint(void)
{{
    return &library;
}}

const struct crt_model *const crt_models[] = {{&toy_model}};
const uint16_t crt_num_models = 1;

static const uint16_t signatures[1];
const struct crt_signatures crt_signatures = {{NULL, signatures}};
const struct crt_params crt_params;
"""
METADATA: Mapping[str, str] = {"metadata.c": _METADATA.replace("{{", "{").replace("}}", "}")}


def toy(body: str = "") -> CModule:
    """The model ``toy``; ``body`` is C that its run executes first."""
    x = Interface("x", "x", (1, 4), DType.INT8, Quant.tensor(0.5), 4)
    y = Interface("y", "y", (1, 4), DType.INT8, Quant.tensor(0.5), 4)
    info = ModelInfo("toy", (x,), (y,), 8, 8, True, True, 0, 0, (LayerInfo("negate", "Neg", "toy"),))
    files = {"toy.c": _MODEL.format(name="toy", body=body), "toy.h": _HEADER.format(name="toy")}
    return CModule(info, files, (RegistryFunction("toy_run", "run"),), ())
