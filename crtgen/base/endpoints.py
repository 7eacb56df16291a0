"""The table of functions that a device offers to a host.

The Python client and the simulated device use it directly. ``tools/endpoints.py`` writes it into the C
runtime and its SPEC.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["EXECUTOR", "GLOBALS", "Endpoint"]

Answer = TypeVar("Answer", covariant=True)

LETTERS = {
    "int": "i",
    "text": "s",
    "device": "d",
    "tensor": "t",
    "module": "m",
    "executor": "m",
    "input": "n",  # its name or its index
}
"""Kinds of arguments, each with its letter in the table of the C runtime."""

_WORDS: dict[type, str] = {int: "int", str: "text", bytes: "bytes"}


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Answer]):
    """A function of a device.

    ``args`` are the arguments, each with its kind and its meaning. ``answer`` is the type of the result:
    ``object`` for nothing, a handle or a tensor; ``result`` is its meaning. ``run`` is the function of the C
    runtime; it is absent unless the macro ``only`` is defined. A ``repeatable`` function may be called again
    if its answer was lost.
    """

    name: str
    args: tuple[str, ...]
    answer: type[Answer]
    result: str
    run: str
    only: str = ""
    repeatable: bool = False

    @property
    def letters(self) -> str:
        return "".join(LETTERS[arg.split()[0]] for arg in self.args if not arg.startswith("optional "))

    def rows(self) -> Iterator[str]:
        if self.only:
            yield f"#ifdef {self.only}"
        name = f'"{self.name}\\0" "{self.letters}"' if self.letters else f'"{self.name}\\0"'
        yield f"    {{{name}, {self.run}}},"
        if self.only:
            yield "#endif"

    def line(self) -> str:
        word = _WORDS.get(self.answer)
        result = f"{word}: {self.result}" if word else self.result
        absent = f"; absent without `{self.only}`" if self.only else ""
        cells = (f"`{self.name}`", ", ".join(self.args), result + absent)
        return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


SYSTEM_LIB = Endpoint(
    "runtime.SystemLib",
    (),
    object,
    "the module of the registry's functions",
    "crt_global_system_lib",
    repeatable=True,
)
MODULE_GET_FUNCTION = Endpoint(
    "tvm.rpc.server.ModuleGetFunction",
    ("module", "text name"),
    object,
    "the function, or null",
    "crt_global_get_function",
    repeatable=True,
)
TIME_EVALUATOR = Endpoint(
    "runtime.RPCTimeEvaluator",
    (
        "module",
        "text name",
        "int device type",
        "int device id",
        "int number",
        "int repeat",
        "int min_repeat_ms",
        "int limit of repeats that take no time",
        "int cooldown in ms",
        "int repeats to cooldown",
    ),
    object,
    "a function that returns bytes: f64 mean seconds of each repeat. More arguments have to be 0 or empty",
    "crt_time_evaluator",
)
MAX_PACKET = Endpoint(
    "tvm.rpc.server.GetCRTMaxPacketSize",
    (),
    int,
    "receive buffer - 11",
    "crt_global_max_packet",
    repeatable=True,
)
RANDOM_FILL = Endpoint("tvm.contrib.random.random_fill", ("tensor",), object, "", "crt_global_random_fill")
AOT_EXECUTOR = Endpoint(
    "tvm.aot_executor.create",
    ("module", "device", "text name of the model"),
    object,
    "an executor",
    "crt_executor_create",
    repeatable=True,
)
GRAPH_EXECUTOR = Endpoint(
    "tvm.graph_executor.create",
    ("text graph JSON (not looked at; of any length)", "module", "int device type", "int device id"),
    object,
    "the executor of an image's only model",
    "crt_executor_create_graph",
)
INFO = Endpoint("crtgen.info", (), str, "`crtgen <version> <model> ...`", "crt_global_info", repeatable=True)
MEMORY = Endpoint(
    "crtgen.memory", (), bytes, "u32 size of the pool, u32 free", "crt_global_memory", repeatable=True
)
TICKS_PER_SECOND = Endpoint(
    "crtgen.ticks_per_second",
    (),
    int,
    "frequency of the timer",
    "crt_global_ticks_per_second",
    repeatable=True,
)
CALIBRATE = Endpoint(
    "crtgen.calibrate",
    ("int loops (at most 400,000,000)",),
    int,
    "ticks of a loop of 2 x loops instructions",
    "crt_time_calibrate",
    repeatable=True,
)
MEASURE = Endpoint(
    "crtgen.measure", ("executor", "int runs"), bytes, "u64 ticks of each run", "crt_time_measure"
)
CRC32 = Endpoint(
    "crtgen.crc32",
    ("int address", "int bytes", "int start"),
    int,
    "CRC-32 of memory as zlib has it, from `start` on; of 0 bytes at any address it is `start`",
    "crt_global_crc32",
    repeatable=True,
)
FAULT = Endpoint(
    "crtgen.fault",
    (),
    bytes,
    "the last fault before this start (section 5), once; null if there is none",
    "crt_global_fault",
    repeatable=True,
)
PROFILE = Endpoint(
    "crtgen.profile",
    ("executor", "int first layer"),
    bytes,
    "u64 ticks of each layer from that one on in one run, as many as there is room for; none behind the last",
    "crt_profile",
    only="CRT_PROFILE",
)
WATCH = Endpoint(
    "crtgen.watch",
    ("executor", "int layer", "int offset in the arena", "tensor"),
    object,
    "runs the model; the tensor gets what lies there when the layer has run",
    "crt_watch",
    only="CRT_PROFILE",
)

RECORDED = Endpoint(
    "crtgen.recorded",
    ("executor",),
    bytes,
    "of a model's black box, to read: u64 address, bytes, runs, layout; of its states, to write: address, "
    "bytes; null if it has none",
    "crt_recorded",
    only="CRT_RECORD",
    repeatable=True,
)
DRIFT = Endpoint(
    "crtgen.drift",
    ("executor",),
    bytes,
    "what the model met, in CBOR (section 10); null if it is not counted",
    "crt_drift_counted",
    only="CRT_DRIFT",
    repeatable=True,
)
SLOTS = Endpoint(
    "crtgen.slots",
    (),
    bytes,
    "i32 active, previous, trial, tries, write size; then of each slot u32 origin, size, work, work size, "
    "i32 status, u32 version, u32 1 if it is to run from the next start on, u32 0, and 32 bytes of the "
    "model's name",
    "crt_slots_about",
    only="CRT_SLOTS",
    repeatable=True,
)
SLOT_BEGIN = Endpoint(
    "crtgen.slot_begin", ("int slot",), object, "it is erased", "crt_slots_erase", only="CRT_SLOTS"
)
SLOT_WRITE = Endpoint(
    "crtgen.slot_write",
    ("int slot", "int offset", "tensor"),
    object,
    "its bytes are written",
    "crt_slots_store",
    only="CRT_SLOTS",
)
SLOT_COPY = Endpoint(
    "crtgen.slot_copy",
    ("int slot", "int offset", "int other slot", "int its offset", "int bytes"),
    object,
    "bytes of another slot are written",
    "crt_slots_transfer",
    only="CRT_SLOTS",
)
SLOT_COMMIT = Endpoint(
    "crtgen.slot_commit",
    ("int slot",),
    object,
    "its model runs from the next start on; of a slot in RAM at once",
    "crt_slots_decide_for",
    only="CRT_SLOTS",
)
SLOT_START = Endpoint(
    "crtgen.slot_start",
    (),
    object,
    "what a start of the device does with slots",
    "crt_slots_again",
    only="CRT_SLOTS",
)
SLOT_CONFIRM = Endpoint(
    "crtgen.slot_confirm",
    (),
    object,
    "the model on trial stays",
    "crt_slots_keep",
    only="CRT_SLOTS",
    repeatable=True,
)
SLOT_REVERT = Endpoint(
    "crtgen.slot_revert",
    (),
    object,
    "the model before runs from the next start on",
    "crt_slots_back",
    only="CRT_SLOTS",
)

GLOBALS = (
    SYSTEM_LIB,
    MODULE_GET_FUNCTION,
    TIME_EVALUATOR,
    MAX_PACKET,
    RANDOM_FILL,
    AOT_EXECUTOR,
    GRAPH_EXECUTOR,
    INFO,
    MEMORY,
    TICKS_PER_SECOND,
    CALIBRATE,
    MEASURE,
    CRC32,
    FAULT,
    PROFILE,
    WATCH,
    RECORDED,
    DRIFT,
    SLOTS,
    SLOT_BEGIN,
    SLOT_WRITE,
    SLOT_COPY,
    SLOT_COMMIT,
    SLOT_START,
    SLOT_CONFIRM,
    SLOT_REVERT,
)
"""Functions that belong to no module, in the order of their handles."""

GET_INPUT = Endpoint("get_input", ("input",), object, "the tensor", "crt_executor_get_input", repeatable=True)
GET_INPUT_INDEX = Endpoint(
    "get_input_index",
    ("text name",),
    int,
    "-1 if there is none",
    "crt_executor_get_input_index",
    repeatable=True,
)
GET_OUTPUT_NAME = Endpoint(
    "get_output_name", ("int index",), str, "its name", "crt_executor_get_output_name", repeatable=True
)
GET_NUM_INPUTS = Endpoint(
    "get_num_inputs", (), int, "how many there are", "crt_executor_get_num_inputs", repeatable=True
)
GET_NUM_OUTPUTS = Endpoint(
    "get_num_outputs", (), int, "how many there are", "crt_executor_get_num_outputs", repeatable=True
)
GET_OUTPUT = Endpoint(
    "get_output",
    ("int index", "optional tensor that takes it"),
    object,
    "the output's own tensor, if none was given",
    "crt_executor_get_output",
    repeatable=True,
)
LOAD_PARAMS = Endpoint("load_params", (), object, "refused: the parameters are linked", "crt_executor_params")
RUN = Endpoint(
    "run",
    ("optional int number (32 bits)",),
    object,
    "nothing is run again for the last number",
    "crt_executor_run_once",
)
SET_INPUT = Endpoint("set_input", ("input", "tensor"), object, "", "crt_executor_set_input", repeatable=True)
SHARE_PARAMS = Endpoint(
    "share_params", (), object, "refused: the parameters are linked", "crt_executor_params"
)
GET_INPUT_NAME = Endpoint(
    "get_input_name", ("int index",), str, "its name", "crt_executor_get_input_name", repeatable=True
)
RESET = Endpoint(
    "reset",
    (),
    object,
    "states are what they are before the first run",
    "crt_executor_reset",
    repeatable=True,
)
GET_INPUT_INFO = Endpoint(
    "get_input_info",
    (),
    object,
    "refused: a map does not travel, `get_input` gives shape and type of an input",
    "crt_executor_get_input_info",
)

EXECUTOR = (
    GET_INPUT,
    GET_INPUT_INDEX,
    GET_OUTPUT_NAME,
    GET_NUM_INPUTS,
    GET_NUM_OUTPUTS,
    GET_OUTPUT,
    LOAD_PARAMS,
    RUN,
    SET_INPUT,
    SHARE_PARAMS,
    GET_INPUT_NAME,
    RESET,
    GET_INPUT_INFO,
)
"""Functions of an executor, in the order of their handles."""
