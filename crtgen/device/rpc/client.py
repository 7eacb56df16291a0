"""The client: a connection, the model on the device, and the extensions of crtgen's firmware."""

import struct
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from crtgen.base import endpoints
from crtgen.base.endpoints import Endpoint
from crtgen.base.errors import RemoteError
from crtgen.base.text import DeviceText
from crtgen.device.fault import Fault
from crtgen.device.rpc.connection import Connection, RemoteFunction, RemoteModule, RemoteTensor
from crtgen.device.rpc.executor import AotExecutor
from crtgen.device.rpc.link import HOST, SERIAL, SIMULATOR, Timeouts

__all__ = [
    "HOST",
    "SERIAL",
    "SIMULATOR",
    "BlackBox",
    "Client",
    "Info",
    "PoolUsage",
    "SlotPlace",
    "SlotsState",
    "Timeouts",
]

# Room for the call itself in the buffer that the device fills with its results.
_CALL_BYTES = 64

# An erasing of a large flash takes so long.
_SLOT_SECONDS = 60.0

# Of a slot: origin, size, work, its size, status; then version, whether it was decided for, name. Old
# firmware sends the first five only.
_SLOT = struct.Struct("<4IiI?7x32s")
_OLD_SLOT = struct.Struct("<4Ii")

Answer = TypeVar("Answer")
Ticks = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Info:
    """Description of an image: the version of crtgen that made it, and the names of its models."""

    version: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolUsage:
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class BlackBox:
    """Record of the last ``runs`` runs of a model: its memory, and the offset of the states in it."""

    address: int
    size: int
    runs: int
    layout: int
    state: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """A slot of a device: its address, the address of its model's memory, and 0 or the reason why its model
    is unusable.

    ``is_chosen``: its model is running, or will run from the next start on. ``model`` and ``version`` are
    empty and 0 without a usable model.
    """

    origin: int
    size: int
    work: int
    work_size: int
    status: int
    version: int = 0
    is_chosen: bool = False
    model: DeviceText = field(default_factory=DeviceText)

    @classmethod
    def read(cls, fields: tuple[Any, ...]) -> "SlotPlace":
        origin, size, work, work_size, status, *more = fields
        if not more:
            return cls(origin, size, work, work_size, status)
        version, is_chosen, name = more
        model = DeviceText.of_bytes(name.rstrip(b"\0"))
        return cls(origin, size, work, work_size, status, version, is_chosen, model)


@dataclass(frozen=True, slots=True)
class SlotsState:
    """The slots of a device: ``active`` holds the running model, or is None; ``previous`` held the one before
    it.

    ``trial``: the model was not confirmed yet, and has ``tries`` starts left for that. Flash is written in
    units of ``write_size`` bytes.
    """

    active: int | None
    previous: int
    trial: bool
    tries: int
    write_size: int
    places: tuple[SlotPlace, ...]


class Client(Connection):
    """A connection to a device; see ``Connection``.

    The methods from ``info`` on need crtgen's firmware. They return None if the device does not have them.
    """

    def aot_executor(self, name: str = "default") -> AotExecutor:
        return AotExecutor.create(self, name)

    def time_evaluator(
        self,
        module: RemoteModule,
        name: str = "run",
        *,
        number: int = 1,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        timeout: float | None = None,
    ) -> tuple[float, ...]:
        """Return the mean seconds of ``number`` calls without arguments, ``repeat`` times, after a
        warm-up.
        """
        asked = (number, repeat, min_repeat_ms)
        limits = (limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        evaluator = self._evaluator(module, name, 1, 0, *asked, *limits)
        means = self._array(evaluator(timeout=timeout), "<f8")
        if len(means) != repeat:
            raise self._violated(f"{len(means)} times came back for {repeat} repeats")
        evaluator.close()
        return tuple(means.tolist())

    def _evaluator(self, *args: Any) -> RemoteFunction:
        # Firmware of TVM 0.14 and later also wants the size of a cache to flush, and no other takes it.
        make = self.function(endpoints.TIME_EVALUATOR.name)
        try:
            return self._expect(RemoteFunction, make(*args, 0, ""))
        except RemoteError:
            return self._expect(RemoteFunction, make(*args, ""))

    def info(self) -> Info | None:
        """Return the description of the image; None for an image without one."""
        text = self._ask(endpoints.INFO)
        if text is None:
            return None
        words = str(DeviceText(text)).split()
        if len(words) < 2 or words[0] != "crtgen":
            raise self._violated(f"crtgen.info returned {text!r}")
        return Info(words[1], tuple(words[2:]))

    def memory(self) -> PoolUsage | None:
        """Return the usage of the device's pool; None if the image cannot tell."""
        data = self._ask(endpoints.MEMORY)
        if data is None:
            return None
        if len(data) != 8:
            raise self._violated(f"crtgen.memory returned {len(data)} bytes")
        return PoolUsage(int.from_bytes(data[:4], "little"), int.from_bytes(data[4:], "little"))

    def last_fault(self) -> Fault | None:
        """Return the fault after which the device restarted, once; None if a host was already told when it
        happened.
        """
        data = self._ask(endpoints.FAULT)
        return None if data is None else Fault.of_bytes(data)

    def ticks_per_second(self) -> int | None:
        return self._ask(endpoints.TICKS_PER_SECOND)

    def calibrate(self, loops: int) -> int | None:
        return self._ask(endpoints.CALIBRATE, loops)

    def measure(self, executor: AotExecutor, runs: int, *, timeout: float | None = None) -> Ticks | None:
        """Return the ticks of each of ``runs`` inferences; ``timeout`` applies to the runs that one packet
        reports.
        """
        portion = max(1, (self.max_packet - _CALL_BYTES) // 8)
        parts = []
        for done in range(0, runs, portion):
            count = min(portion, runs - done)
            data = self._ask(endpoints.MEASURE, executor.module, count, timeout=timeout)
            if data is None:
                return None
            if len(data) != 8 * count:
                raise self._violated(f"crtgen.measure returned {len(data)} bytes for {count} runs")
            parts.append(data)
        return self._array(b"".join(parts), "<u8")

    def profile(self, executor: AotExecutor, *, timeout: float | None = None) -> Ticks | None:
        """Return the ticks of each layer, or None if the firmware was built without profiling.

        A packet has room for a limited number of layers, all of one inference; a longer model takes several
        packets. ``timeout`` applies to each.
        """
        room = max(1, (self.max_packet - _CALL_BYTES) // 8)
        layers = b""
        while True:
            data = self._ask(endpoints.PROFILE, executor.module, len(layers) // 8, timeout=timeout)
            if data is None:
                return None
            layers += data
            if len(data) < 8 * room:
                return self._array(layers, "<u8")

    def watch(
        self,
        executor: AotExecutor,
        layer: int,
        offset: int,
        place: RemoteTensor,
        *,
        timeout: float | None = None,
    ) -> bool:
        """Run, and copy the arena's bytes at ``offset`` to ``place`` as soon as ``layer`` has run.

        Returns False if the firmware was built without profiling.
        """
        function = self.get_function(endpoints.WATCH.name)
        if function is None:
            return False
        function(executor.module, layer, offset, place, timeout=timeout)
        return True

    def black_box(self, executor: AotExecutor) -> BlackBox | None:
        """Return the record of a model's last runs, or None if the device keeps none."""
        data = self._ask(endpoints.RECORDED, executor.module)
        if data is None:
            return None
        if len(data) != 48:
            raise self._violated(f"crtgen.recorded returned {len(data)} bytes")
        return BlackBox(*struct.unpack("<6Q", data))

    def drift(self, executor: AotExecutor) -> bytes | None:
        """Return the counts of a model's inputs, in CBOR, or None if the device keeps none."""
        return self._ask(endpoints.DRIFT, executor.module)

    def slots(self) -> SlotsState | None:
        data = self._ask(endpoints.SLOTS)
        if data is None:
            return None
        each = next((each for each in (_SLOT, _OLD_SLOT) if not (len(data) - 20) % each.size), None)
        if len(data) < 20 or each is None:
            raise self._violated(f"crtgen.slots returned {len(data)} bytes")
        active, previous, trial, tries, unit = struct.unpack_from("<5i", data)
        places = tuple(SlotPlace.read(fields) for fields in each.iter_unpack(data[20:]))
        if unit < 1 or active >= len(places):
            raise self._violated("crtgen.slots contradicts itself")
        return SlotsState(None if active < 0 else active, previous, bool(trial), tries, unit, places)

    def slot_call(self, endpoint: Endpoint[object], *args: Any) -> None:
        self._ask(endpoint, *args, timeout=_SLOT_SECONDS)

    def _ask(self, endpoint: Endpoint[Answer], *args: Any, timeout: float | None = None) -> Answer | None:
        # Call a function that may be absent.
        function = self.get_function(endpoint.name)
        if function is None:
            return None
        answer = self.call(function, args, timeout, again=0.0 if endpoint.repeatable else None)
        return None if answer is None else self._expect(endpoint.answer, answer)

    def _array(self, data: object, dtype: str) -> "np.ndarray[Any, Any]":
        raw = self._expect(bytes, data)
        if len(raw) % np.dtype(dtype).itemsize:
            raise self._violated(f"{len(raw)} bytes are no whole numbers of type {dtype}")
        return np.frombuffer(raw, dtype)
