"""The example of a library: what feeds a pipeline from interrupts, with the events of the twin."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from tests.network.pipeline.files import given, marvin
from tests.network.pipeline.pushed import load, run_main, twin

_MAIN = """
#define main main_of_the_example
#include "library/example/main.c"
#undef main
#include "print.h"
void systick_handler(void);
void systick_handler(void)
{
}
static void print(const struct NAME_event *event)
{
    put_number("event ", (uint32_t)event->sample);
    put_number(" ", event->label);
    put("\\n");
}
static void poll(void)
{
    const uint32_t before = NAME_events;
    NAME_poll();
    if (NAME_events != before) {
        print(&NAME_last);
    }
}
int main(void)
{
    if (main_of_the_example() != 0) {
        return 1;
    }
    NAME_reset();
    NAME_events = 0;
    BODY
    return 0;
}
"""
_SOUND = """
    static const int16_t samples[] = {DATA};
    for (uint32_t at = 0; at + HEARD_HOP <= sizeof samples / 2; at += HEARD_HOP) {
        static uint32_t half = (HEARD_FIRST + HEARD_HOP - 1) / HEARD_HOP % 2;
        (void)memcpy(heard_halves[half], samples + at, sizeof heard_halves[half]);
        heard_half_is_full(half);
        half = 1 - half;
        poll();
    }
    return heard_late == 0 ? 0 : 1;
"""
_MOVES = """
    static const int16_t samples[] = {DATA};
    for (uint32_t at = 0; at < COUNT; at += 13) {
        heard_fifo_is_full(samples + (3 * at), (COUNT - at < 13) ? COUNT - at : 13);
        poll();
    }
    return heard_lost == 0 ? 0 : 1;
"""
_LINES = """
    static const uint8_t rows[][20] = {DATA};
    for (uint32_t frame = 0; frame < COUNT / HEARD_HEIGHT; frame++) {
        heard_frame_begins();
        for (uint32_t line = 0; line < HEARD_HEIGHT; line++) {
            (void)memcpy(heard_next_line(), rows[(frame * HEARD_HEIGHT) + line], 20);
            heard_line_is_in();
            if ((frame != 1) || (line < 3) || (line > 5)) { /* a run of something else: the frame is lost */
                poll();
            }
        }
    }
"""

# A copy of the example during which a line comes in: the interrupt of the DMA.
_INTERRUPTED = """
#include <string.h>
static int is_interrupted;
void heard_line_is_in(void);
static void *interrupted(void *to, const void *from, size_t size)
{
    (void)memcpy(to, from, size);
    if (is_interrupted) {
        is_interrupted = 0;
        heard_line_is_in();
    }
    return to;
}
#define memcpy interrupted
"""
_OVERWRITTEN = """
    static const uint8_t rows[][20] = {DATA};
    for (uint32_t frame = 0; frame < COUNT / HEARD_HEIGHT; frame++) {
        heard_frame_begins();
        for (uint32_t line = 0; line < HEARD_HEIGHT; line++) {
            (void)(memcpy)(heard_next_line(), rows[(frame * HEARD_HEIGHT) + line], 20);
            heard_line_is_in();
            is_interrupted = (frame == 1) && (line == 15);
            poll();
        }
    }
"""


def _run(folder: Path, file: Path, body: str, data: npt.NDArray[np.generic], machine: str) -> list[str]:
    """The events of the example's program."""
    text = file.read_text().replace('name = "marvin"', 'name = "heard"')
    (folder / "heard.toml").write_text(text)
    crtgen.load(folder / "heard.toml").compile(machine or "host").generate("library").extract(
        folder / "library"
    )
    rows = [",".join(map(str, row)) for row in data] if data.ndim > 1 else []
    numbers = ",".join(f"{{{row}}}" for row in rows) if rows else ",".join(map(str, data))
    body = body.replace("DATA", numbers).replace("COUNT", f"{len(data)}U")
    main = _MAIN.replace("BODY", body).replace("NAME", "heard")
    return run_main(folder, (_INTERRUPTED if "is_interrupted" in body else "") + main, machine)


_MACHINES = [pytest.param("", marks=pytest.mark.cc), pytest.param("mps2_an386", marks=pytest.mark.qemu)]


@pytest.mark.parametrize("machine", _MACHINES)
def test_a_microphone_with_a_double_buffer(tmp_path: Path, machine: str) -> None:
    file = marvin(tmp_path)
    samples = given("mlperf_sww")["wav0"]
    wanted = [f"event {event.sample} {event.label}" for event in twin(load(file), samples)]
    assert wanted
    assert _run(tmp_path, file, _SOUND, samples, machine) == wanted


@pytest.mark.parametrize("machine", _MACHINES)
def test_a_sensor_with_a_fifo(tmp_path: Path, machine: str) -> None:
    file = tmp_path / "moves.toml"
    sensor = '[pipeline]\nname = "heard"\nsensor = { kind = "imu", axes = 3, rate = 100 }\n'
    features = '[features]\npreset = "edge-impulse-flatten"\nframe = 50\nhop = 20\n'
    file.write_text(f"{sensor}{features}[decision]\nabove = 0.5\npatience = 2\n")
    raw = np.round(given("ei_spectral_v4")["x_f32"][0] * 4096).clip(-32768, 32767).astype(np.int16)
    wanted = [f"event {e.sample} {e.label}" for e in twin(load(file), raw * np.float32(1 / 4096))]
    assert len(wanted) > 1
    data = raw.ravel()
    body = _MOVES.replace("COUNT", f"{len(raw)}U")
    assert _run(tmp_path, file, body, data, machine) == wanted


@pytest.mark.parametrize("machine", _MACHINES)
@pytest.mark.parametrize("body", [_LINES, _OVERWRITTEN], ids=["late", "overwritten"])
def test_lines_of_a_camera(tmp_path: Path, machine: str, body: str) -> None:
    """Three frames, of which the second one is lost: its lines came in while nobody took them, or while one
    was read.
    """
    file = tmp_path / "seen.toml"
    sensor = (
        '[pipeline]\nname = "heard"\nsensor = { kind = "image", width = 20, height = 16, format = "grey" }\n'
    )
    features = '[features]\npreset = "image"\nwidth = 5\nheight = 4\n'
    file.write_text(f"{sensor}{features}[decision]\nabove = 0.1\n")
    rows = np.random.default_rng(2).integers(0, 256, (48, 20)).astype(np.uint8)
    events = twin(load(file), rows)
    assert [event.sample for event in events] == [16, 32, 48]
    wanted = [f"event 16 {events[0].label}", f"event 16 {events[2].label}"]
    assert _run(tmp_path, file, body, rows, machine) == wanted
