"""A running image: inference and timing, from Python."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from crtgen.base.errors import ProtocolError, UnsupportedError, UsageError
from crtgen.boards import Board, find_board
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.device.fault import Symbols, describe
from crtgen.device.rpc import AotExecutor, Client
from crtgen.device.rpc.client import BlackBox
from crtgen.device.rpc.connection import RemoteTensor
from crtgen.device.rpc.link import HOST, SERIAL, SIMULATOR, Timeouts
from crtgen.device.rpc.values import DataType, Tensor
from crtgen.device.run import Device, RunningDevice, SerialDevice, Site, start_device
from crtgen.firmware.builder import BuiltImage
from crtgen.network.ir import Array, shape_text

__all__ = ["Measurement", "Session", "choose_model"]

CALIBRATION_LOOPS = 500_000
"""Loops of two instructions each that the timer is calibrated against."""

RUN_TIMEOUT = 120.0
"""Seconds that an inference may take before the device counts as hung."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of inferences on the device.

    ``ticks`` has one entry per run. ``instructions`` is the mean per run if the device counts them (QEMU),
    ``cycles`` if its clock is the core's (SysTick of a real chip), otherwise None; ``seconds`` is the mean by
    the device's clock.
    """

    ticks: tuple[int, ...]
    seconds: float
    instructions: int | None
    cycles: int | None = None


class Session:
    """A running image. The context manager connects to it, and stops it at the end.

    After a ``RemoteError`` the session continues; after any other ``LinkError`` it must be closed. A fault of
    the device raises ``DeviceFault``, with names from the image.
    """

    def __init__(
        self, image: BuiltImage, device: Device, client: Client, *, counting: bool, owner: object = None
    ) -> None:
        self.image = image
        self.owner = owner
        self.device = device
        self.client = client
        self.counting = counting
        self._stack = ExitStack()
        self._is_open = False
        self._executors: dict[str, AotExecutor] = {}
        self._per_tick: float | None = None
        self._on_log: Callable[[str], None] = lambda line: None
        self._prepare: Callable[[Client], object] | None = None

    @classmethod
    def start(
        cls,
        image: BuiltImage,
        *,
        counting: bool,
        on_log: Callable[[str], None],
        site: Site | None = None,
        owner: object = None,
        prepare: Callable[[Client], object] | None = None,
    ) -> Self:
        """Start the image on its board; entering the session connects to it.

        The session keeps ``owner``, on which the image's directory depends. ``prepare`` is called with the
        client once it is connected.
        """
        if image.manifest.type != ("server" if prepare is None else "slot"):
            raise UsageError(
                f"a {image.manifest.type} image does not communicate", hint="generate it with --type server"
            )
        board = find_board(image.board)
        site = replace(site or Site(), rtt=image.manifest.options.rtt)
        device = start_device(image.path, board, counting=counting, site=site)
        symbols = _symbols(image)
        client = Client(device.stream, timeouts=_timeouts(board, device), on_log=on_log, symbols=symbols)
        counts = counting and board.qemu is not None and isinstance(device, RunningDevice)
        session = cls(image, device, client, counting=counts, owner=owner)
        session._on_log = on_log
        session._prepare = prepare
        return session

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._executors.clear()
        self._is_open = False
        self._stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    def open(self) -> Self:
        """Connect to the device without a ``with`` block; ``close`` ends the session."""
        with ExitStack() as stack:
            stack.enter_context(self.device)
            stack.enter_context(self.client)
            if self._prepare is not None:
                self._prepare(self.client)
            if isinstance(self.device, SerialDevice) and (fault := self.client.last_fault()):
                self._on_log(f"before this session: {describe(fault, _symbols(self.image)).message}")
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    def close(self) -> None:
        """End the session and stop the device, open or not. Calling it again has no effect."""
        self.__exit__(None, None, None)
        self.device.close()

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        return self.image.manifest.models

    def model(self, name: str | None = None) -> ModelInfo:
        """Return the description of a model; None means the only model."""
        return choose_model(self.models, name)

    def infer(self, *inputs: Array, model: str | None = None) -> tuple[Array, ...]:
        """Run one inference. Takes an array per input, in order, and returns the outputs, in order.

        Raises ``UsageError`` for a wrong shape or type, ``RemoteError`` if the device refuses.
        """
        info = self.model(model)
        executor = self._executor(info.name)
        self._write(info, executor, inputs)
        executor.run(timeout=RUN_TIMEOUT)
        return tuple(_expected(o, executor.output(i)).read() for i, o in enumerate(info.outputs))

    def reset(self, model: str | None = None) -> None:
        """Reset the model's states, as at the start of a session."""
        info = self.model(model)
        executor = self._executor(info.name)
        if info.state:
            executor.reset()

    def set_state(self, state: bytes, model: str | None = None) -> None:
        """Set the model's states to these bytes. The image must have a black box."""
        box = self._black_box(self.model(model))
        if len(state) != box.state_bytes:
            raise _other_image(f"the states have {box.state_bytes} bytes there, {len(state)} were recorded")
        place = Tensor(box.state, (len(state),), DataType.of(np.uint8))
        self.client.copy_to(place, np.frombuffer(state, np.uint8))

    def recording(self, model: str | None = None) -> tuple[bytes, BlackBox]:
        """Return the memory of a model's black box, and its description. The image must have one."""
        box = self._black_box(self.model(model))
        return self.client.copy_from(Tensor(box.address, (box.size,), DataType.of(np.uint8))).tobytes(), box

    def drift(self, model: str | None = None) -> bytes | None:
        """Return the counts of a model's inputs, for ``crtgen.lab.measure.drift.read_window``; None if the
        device keeps none.
        """
        return self.client.drift(self._executor(self.model(model).name))

    def _black_box(self, info: ModelInfo) -> BlackBox:
        box = self.client.black_box(self._executor(info.name))
        if box is None:
            hint = "generate it with --record RUNS"
            raise UnsupportedError(f"the firmware has no black box of {info.name}", hint=hint)
        return box

    def measure(self, runs: int = 1, model: str | None = None) -> Measurement:
        """Run a model ``runs`` times, on the current contents of its inputs, and read the device's timer."""
        executor = self._executor(self.model(model).name)
        ticks = self.client.measure(executor, runs, timeout=RUN_TIMEOUT * runs)
        rate = self.client.ticks_per_second()
        if ticks is None or rate is None:
            raise _cannot("measure")
        mean = float(ticks.mean())
        instructions = round(mean * self.instructions_per_tick()) if self.counting else None
        cycles = round(mean) if self._counts_cycles() else None
        return Measurement(tuple(ticks.tolist()), mean / rate, instructions, cycles)

    def _counts_cycles(self) -> bool:
        # True if a tick is a cycle of the core: on bare metal of a real board, or a simulator that counts
        # cycles.
        board = find_board(self.image.board)
        if self.image.platform != "baremetal" or board.timer is None or board.timer.kind != "systick":
            return False
        return board.is_real and (isinstance(self.device, SerialDevice) or board.rp2040js)

    def profile(self, model: str | None = None) -> tuple[int, ...]:
        """Return the ticks of each layer of one run. The image must be built with ``profile``."""
        info = self.model(model)
        ticks = self.client.profile(self._executor(info.name), timeout=RUN_TIMEOUT)
        if ticks is None:
            raise _cannot("profile")
        if len(ticks) != len(info.layers):
            raise _other_image(f"{info.name} has {len(ticks)} layers there, {len(info.layers)} in the image")
        return tuple(ticks.tolist())

    def watch(
        self,
        runs: Sequence[Sequence[Array]],
        layer: int,
        offset: int,
        nbytes: int,
        model: str | None = None,
        state: bytes = b"",
    ) -> bytes:
        """Return ``nbytes`` of the arena at ``offset`` after layer ``layer`` of the last of these runs;
        layers count from 0.

        The runs follow a reset, or start from ``state``, as in ``set_state``. The image must be built with
        ``profile``. More bytes than the device can set aside are read in parts, and the runs are repeated for
        each.
        """
        info = self.model(model)
        executor = self._executor(info.name)
        memory = self.client.memory()
        room = nbytes if memory is None else max(memory.free // 2, 1)
        read = b""
        while len(read) < nbytes:
            self.reset(info.name)
            if state:
                self.set_state(state, info.name)
            for inputs in runs[:-1]:
                self.infer(*inputs, model=info.name)
            self._write(info, executor, runs[-1])
            with self.client.allocate((min(room, nbytes - len(read)),), np.uint8) as part:
                if not self.client.watch(executor, layer, offset + len(read), part, timeout=RUN_TIMEOUT):
                    raise _cannot("watch layers")
                read += part.read().tobytes()
        return read

    def instructions_per_tick(self) -> float:
        """Return the instructions per tick of the device's timer.

        Two loops of known lengths are timed; in the difference, the fixed cost of a call cancels.
        """
        if self._per_tick is None:
            once, thrice = (self.client.calibrate(n * CALIBRATION_LOOPS) for n in (1, 3))
            if once is None or thrice is None:
                raise _cannot("calibrate")
            if thrice <= once:
                raise ProtocolError(f"the device's timer does not advance: {once} ticks, then {thrice}")
            self._per_tick = 4 * CALIBRATION_LOOPS / (thrice - once)
        return self._per_tick

    def _write(self, info: ModelInfo, executor: AotExecutor, inputs: Sequence[Array]) -> None:
        _check(info.inputs, inputs)
        for index, (interface, array) in enumerate(zip(info.inputs, inputs, strict=True)):
            _expected(interface, executor.input(index)).write(array)

    def _executor(self, name: str) -> AotExecutor:
        if not self._is_open:
            hint = "with image.run() as session: ..., or session.open() and session.close()"
            raise UsageError("the session is not open", where=self.device.name, hint=hint)
        if name not in self._executors:
            self._executors[name] = self.client.aot_executor(name)
            if self.model(name).state:
                self._executors[name].reset()
        return self._executors[name]


def _symbols(image: BuiltImage) -> Symbols:
    layers = [layer for model in image.manifest.models for layer in model.layers]
    return Symbols(image.path, [(layer.name, (layer.function, *layer.parts)) for layer in layers])


def choose_model(models: Sequence[ModelInfo], name: str | None) -> ModelInfo:
    """Return the model of that name; None means the only model. Raises ``UsageError``."""
    if name is None and len(models) == 1:
        return models[0]
    found = next((m for m in models if m.name == name), None)
    if found is None:
        names = ", ".join(m.name for m in models)
        what = f"there is no model {name}" if name else "there are several models"
        raise UsageError(what, hint=f"name one with --model: {names}")
    return found


def _timeouts(board: Board, device: Device) -> Timeouts:
    if isinstance(device, SerialDevice):
        return SERIAL
    return HOST if board.is_host else SIMULATOR


def _cannot(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"the firmware cannot {what}", hint="build it with this version of crtgen, with --profile for layers"
    )


def _expected(interface: Interface, place: RemoteTensor) -> RemoteTensor:
    # The tensor that the device names, if it is the one of the project: that decides what is copied.
    tensor = place.tensor
    if tensor.shape != interface.shape or tensor.dtype != DataType.of(interface.dtype.numpy):
        raise _other_image(
            f"{interface.name} has the shape {shape_text(tensor.shape)} there,"
            f" {shape_text(interface.shape)} {interface.dtype.value} in the image"
        )
    return place


def _other_image(how: str) -> ProtocolError:
    hint = "write the image to the device again"
    return ProtocolError(f"the device does not run this image: {how}", hint=hint)


def _check(interfaces: Sequence[Interface], arrays: Sequence[Array]) -> None:
    if len(arrays) != len(interfaces):
        raise UsageError(
            f"{len(arrays)} inputs were given, the model has {len(interfaces)}",
            hint="give one array per input, in their order",
        )
    for interface, array in zip(interfaces, arrays, strict=True):
        given = np.asarray(array)
        if given.shape != interface.shape or given.dtype != interface.dtype.numpy:
            raise UsageError(
                f"the input {interface.name} is {shape_text(interface.shape)} {interface.dtype.value},"
                f" not {shape_text(given.shape)} {given.dtype}",
                hint="convert the array, or give floats, which are quantised",
            )
        if given.dtype.kind == "f" and np.isnan(given).any():
            place = ", ".join(map(str, np.argwhere(np.isnan(given))[0]))
            raise UsageError(
                f"the input {interface.name} is not a number at [{place}]",
                hint="replace it: the result for NaN is undefined",
            )
