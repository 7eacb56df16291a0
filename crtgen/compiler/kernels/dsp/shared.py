"""The matrix design for size: one function for all convolutions of a type, with a table of parameters for
each.
"""

from dataclasses import replace

from crtgen.compiler.kernels.asm import Routine, Runs
from crtgen.compiler.kernels.dsp.copy import copied, copy
from crtgen.compiler.kernels.dsp.layer import DspLayer
from crtgen.compiler.kernels.dsp.shared_asm import UNROLL, DspSharedView, SharedGroup, any_windows
from crtgen.compiler.kernels.dsp.walk import PIXELS, PaddedRows
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.compiler.kernels.shared.tables import table

__all__ = ["shared_kernel"]


def shared_kernel(layer: DspLayer) -> Kernel:
    stream = layer.stream
    shifts = (1, 1) if stream.epilogue.floor else ()  # those of the layer are in the table
    view = DspSharedView(replace(stream.epilogue, shifts=shifts), stream.form)
    routines = (SharedGroup.routine(view), any_windows(view.size), copy())
    scratch = 4 * PIXELS * layer.steps + PIXELS * stream.pixel_bytes + layer.walk.scratch
    return Kernel(
        design="dsp_matrix_shared",
        template="dsp/conv_shared.c.j2",
        view=view,
        consts=(layer.weights, _table(layer)),
        scratch=scratch,
        inplace=(InPlace(lead=layer.lead),),
        work=_work(layer, routines[0], routines[1]),
        routines=routines,
        includes=("crt/dsp_conv.h",),
    )


def _work(layer: DspLayer, group: Routine, windows: Routine) -> Work:
    packing, stream, rounds = layer.packing, layer.stream, layer.steps // UNROLL
    walk, images = layer.walk, layer.walk.images
    groups = images * -(-walk.pixels // PIXELS)
    parts = [n for n in (stream.even, int(stream.odd)) if n]
    counted = Runs.sum(group.runs(pairs=n, rounds=rounds) for n in parts)
    if packing.words:
        counted += windows.runs(rows=packing.rows, taps=packing.taps, words=packing.words)
    work = Work(groups * counted).block("group", groups).block("second", groups * (len(parts) - 1))
    work.block("rest", groups * len(packing.rest)).block("image", images)
    if walk.pixels % PIXELS:
        work.block("partial", images)
        work.assembly += images * copied(walk.pixels % PIXELS * stream.pixel_bytes)
    if walk.rows:
        work.block("window", images).block("window word", images * walk.scratch / 4)
        walk.work(work)
    return work


def _table(layer: DspLayer) -> Const:
    # A layer's numbers; without padding the window has no rows.
    walk, packing, stream = layer.walk, layer.packing, layer.stream
    window = walk.rows or PaddedRows(0, 0, 0, 0, 0, 0, 0, 0, 0)
    shift_a, shift_b = stream.epilogue.shifts or (0, 0)
    numbers = dict(
        column_bytes=4 * PIXELS * layer.steps,
        pixel_bytes=stream.pixel_bytes,
        shift_a=shift_a,
        shift_b=shift_b,
        images=walk.images,
        image_bytes=walk.image_bytes,
        pixels=walk.pixels,
        width=walk.width,
        pixel_step=walk.pixel_step,
        row_advance=walk.row_advance,
        even_words=stream.even_words,
        odd_words=stream.odd_words,
        rows=packing.rows,
        taps=packing.taps,
        words=packing.words,
        tap_advance=packing.tap_advance if packing.taps > 1 else 0,
        window_advance=packing.row_advance,
        rests=len(packing.rest),
        window_rows=window.rows,
        window_pitch=window.pitch,
        window_left=window.left,
        window_stride=window.stride,
        window_kept=window.kept,
        window_first=window.first,
        zero_point=window.zero_point,
        height=window.height,
        row_bytes=window.row_bytes,
        input_pitch=window.input_pitch,
    )
    rest = [-1 if at is None else at for pair in packing.rest for at in pair]
    last = "" if window.rows or rest else "window_rows"
    return table("dsp_conv", {**numbers, "rest": rest}, last)
