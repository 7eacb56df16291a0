"""A program that pushes samples into a pipeline in parts of several sizes, and what its twin says of them."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import crtgen
from crtgen.boards.core import find_core
from crtgen.network.pipeline import Event, JoinedPipeline, events_of, runs_of
from tests.compiler.kernels.program import HERE, qemu_command
from tests.network.pipeline.files import built
from tests.support import WARNINGS, compile_each, require_tool

Samples = npt.NDArray[Any]

_SIZES = (1, 7, 160, 1025)
"""The parts, in samples."""

_MAIN = """
#include <string.h>
#include "print.h"
#include "NAME_pipeline.h"
static const TYPE samples[] = {DATA};
static void word(const void *at)
{
    uint32_t number;
    (void)memcpy(&number, at, 4);
    put_number(" ", number);
}
void systick_handler(void);
void systick_handler(void)
{
}
int main(void)
{
    static const uint32_t sizes[] = {SIZES};
    for (uint32_t n = 0; n < sizeof sizes / 4; n++) {
        for (uint32_t at = 0; at < COUNT; at += sizes[n]) {
            struct NAME_event event;
            const uint32_t part = (COUNT - at < sizes[n]) ? COUNT - at : sizes[n];
            if (NAME_push(samples + (WIDTH * at), part, &event) > 0) {
                put_number("event ", (uint32_t)event.sample);
                FIELDS
                put("\\n");
            }
        }
        NAME_reset();
        put("reset\\n");
    }
    return 0;
}
"""
_BOX = "".join(f"word(&event.boxes[i].{name}); " for name in ("x", "y", "width", "height", "label", "score"))
_TOP = "word(&event.top[i]); word(&event.top_scores[i]);"


def load(file: Path) -> JoinedPipeline:
    """The pipeline in a file."""
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    return model.pipeline


def twin(pipeline: JoinedPipeline, samples: Samples) -> list[Event]:
    """The events in samples, by the numpy references."""
    outputs = pipeline.graph.run([[run] for run in runs_of(pipeline, samples)])
    return events_of(pipeline, [y[0] for y in outputs])


def check(folder: Path, file: Path, samples: Samples, machine: str = "") -> list[Event]:
    """The events of the twin, after comparing those of the C with them, on the host or in QEMU."""
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    model.compile(machine or "host").generate("library").extract(folder / "library")
    main = _main(model.pipeline, model.name, samples)
    printed = run_main(folder, main, machine)
    events = twin(model.pipeline, samples)
    parts = [_last_of_each(events, size) for size in _SIZES]
    wanted = [[*(_line(event, model.pipeline) for event in part), "reset"] for part in parts]
    assert printed == [line for lines in wanted for line in lines]
    return events


def run_main(folder: Path, main: str, machine: str) -> list[str]:
    """What a program prints that is linked with the library in ``folder``: on the host, or in QEMU."""
    program = _on_board(folder, main, machine) if machine else built(folder, main, f"-I{HERE / 'baremetal'}")
    command = qemu_command(machine.replace("_", "-"), program) if machine else [str(program)]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines()


def _last_of_each(events: list[Event], size: int) -> list[Event]:
    """The events that pushes of ``size`` samples give: a push gives the last one of it."""
    last = {(event.sample - 1) // size: event for event in events}
    return list(last.values())


def _line(event: Event, pipeline: JoinedPipeline) -> str:
    return " ".join(map(str, ["event", *_words(event, pipeline)]))


def _on_board(folder: Path, main: str, machine: str) -> Path:
    (folder / "main.c").write_text(main)
    parts = [folder / "library" / part for part in ("model", "runtime/include")]
    sources = [
        *parts[0].glob("*.c"),
        *parts[0].glob("*.S"),
        folder / "main.c",
        HERE / "baremetal" / "start.c",
    ]
    core = {"mps2_an385": "cortex-m3", "mps2_an386": "cortex-m4"}[machine]
    flags = [*find_core(core).gcc_flags, "-O2", *WARNINGS, "-nostartfiles", "-specs=nano.specs"]
    includes = [f"-I{part}" for part in (*parts, HERE / "baremetal")]
    link = [f"-T{HERE / 'baremetal' / 'an385.ld'}"]
    return compile_each(
        [require_tool("arm-none-eabi-gcc"), *flags, *includes], sources, folder / "image.elf", link
    )


def _main(pipeline: JoinedPipeline, name: str, samples: Samples) -> str:
    numbers = samples.ravel()
    is_real = numbers.dtype == np.float32
    data = ",".join(f"{float(n).hex()}F" if is_real else str(n) for n in numbers)
    decision = pipeline.decision
    assert decision is not None
    fields = "word(&event.label); word(&event.score);"
    if decision.boxes is not None:
        fields += f"for (uint32_t i = 0; i < event.count; i++) {{ {_BOX} }}"
    if decision.top > 1:
        fields += f"for (uint32_t i = 0; i < {decision.top}; i++) {{ {_TOP} }}"
    if 0 < decision.least < decision.average:
        fields += "word(&event.runs);"
    values = {
        "NAME": name,
        "TYPE": pipeline.samples.dtype.c_name,
        "DATA": data,
        "SIZES": ",".join(map(str, _SIZES)),
        "COUNT": str(len(samples)),
        "WIDTH": str(samples[0].size),
        "FIELDS": fields,
    }
    main = _MAIN
    for key, value in values.items():
        main = main.replace(key, value)
    return main


def _words(event: Event, pipeline: JoinedPipeline) -> list[int]:
    decision = pipeline.decision
    assert decision is not None
    is_real = pipeline.output.dtype.value == "float32" or decision.boxes is not None

    def bits(number: float) -> int:
        return int(np.float32(number).view(np.uint32) if is_real else np.int64(number) & 0xFFFFFFFF)

    words = [event.sample, event.label, bits(event.score)]
    for box in event.boxes:
        words += [bits(getattr(box, name)) for name in ("x", "y", "width", "height")]
        words += [box.label, bits(box.score)]
    if decision.top > 1:
        words += [word for label, score in event.top for word in (label, bits(score))]
    if 0 < decision.least < decision.average:
        words.append(event.runs)
    return words
