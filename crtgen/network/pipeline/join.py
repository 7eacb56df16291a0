"""Joins features and a network to one graph, whose input is the samples of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.network.features import FeatureSettings, ImageSettings, MelSettings, VibrationSettings
from crtgen.network.features.framing import lead, offset, starts_of, stretches_of, window_length
from crtgen.network.features.picture import frame_value, picture
from crtgen.network.features.rows import features_of
from crtgen.network.features.scaler import scaled
from crtgen.network.features.settings import MicroSettings, SoundSettings
from crtgen.network.features.steps import GraphSteps, Handle
from crtgen.network.features.vibration import vibration
from crtgen.network.ir import DType, Graph, Node, Quant, Value, shape_text
from crtgen.network.ops import Cast, Concat, Quantize, Reshape, StridedSlice
from crtgen.network.passes import DEFAULT_PASSES, Sliding, run_passes, slide
from crtgen.network.passes.slide import start_of_signal
from crtgen.network.pipeline.boxes import layout_of
from crtgen.network.pipeline.decision import Decision
from crtgen.network.pipeline.description import Description
from crtgen.network.pipeline.rounding import IntegerRounding
from crtgen.network.pipeline.scores import distance, mean_square, with_gate

__all__ = ["JoinedPipeline", "join"]

# Largest relative distance of an input's scale from the preset's, for the preset's codes to be its own.
_CALIBRATED = 0.01

# That distance for the bytes of the integer front end, whose scale each converter estimates anew.
_MEANT = 0.05


@dataclass(frozen=True, slots=True)
class JoinedPipeline:
    """The graph of a run, and how samples are fed to it.

    A run gets ``span`` samples; the next run gets those ``hop`` samples later. Before the first sample there
    are ``before`` zeros; ``skip`` samples are skipped. The first ``warm`` runs only fill the network's
    window, and their outputs have no meaning.
    """

    graph: Graph
    settings: FeatureSettings
    span: int
    hop: int
    before: int
    skip: int
    warm: int
    decision: Decision | None
    rounded: IntegerRounding | None = None
    """Rounding of float features to integers."""
    again: Callable[[FeatureSettings], "JoinedPipeline"] | None = field(
        default=None, compare=False, repr=False
    )
    """Return the pipeline with other settings."""

    def on(self, *, fpu: bool) -> "JoinedPipeline":
        """Return the pipeline for a core with or without an FPU; without one, spectra are computed in
        int32.
        """
        if not isinstance(self.settings, MelSettings):
            return self
        settings = self.settings.on(fpu=fpu)
        if self.again is None or settings.arithmetic != "int32" or settings == self.settings:
            return replace(self, settings=settings)
        return self.again(settings)

    @property
    def rate(self) -> int:
        return self.settings.rate

    @property
    def is_camera(self) -> bool:
        return isinstance(self.settings, ImageSettings)

    @property
    def picture(self) -> tuple[int, int]:
        """Width and height of the network's input from a camera; 0 for other sensors."""
        settings = self.settings
        return (settings.width, settings.height) if isinstance(settings, ImageSettings) else (0, 0)

    @property
    def samples(self) -> Value:
        """Return the input of a run: ``[span]`` of int16, ``[span, axes]`` of float32, or a frame of ``span``
        rows.
        """
        return self.graph.values[self.graph.inputs[0]]

    @property
    def output(self) -> Value:
        return self.graph.values[self.graph.outputs[0]]


def join(description: Description, network: Graph | None, gate: Graph | None = None) -> JoinedPipeline:
    """Return one graph from samples to the outputs of the network, followed by the score of a ``gate``, if
    any.

    Raises ``UsageError`` for a network that does not accept such features, and for settings that no operator
    can compute.
    """
    try:
        made = _joined(description, _Networks(network, gate))
    except ValueError as error:  # what an operator says of its shapes
        raise UsageError(
            f"such features cannot be computed: {error}",
            where=description.name,
            hint="docs/features.md says which values go together",
        ) from error
    return replace(made, again=lambda other: join(replace(description, settings=other), network, gate))


def _joined(description: Description, networks: "_Networks") -> JoinedPipeline:
    if isinstance(description.settings, VibrationSettings):
        made = _of_vibrations(description, description.settings, networks)
    elif isinstance(description.settings, ImageSettings):
        made = _of_frames(description, description.settings, networks)
    else:
        made = _of_sound(description, description.settings, networks)
    _check_decision(made)
    return made


@dataclass(frozen=True, slots=True)
class _Networks:
    main: Graph | None
    gate: Graph | None = None

    @property
    def names(self) -> set[str]:
        graphs = [graph for graph in (self.main, self.gate) if graph is not None]
        return {name for g in graphs for name in (*g.values, *(node.name for node in g.nodes))}


def _of_vibrations(
    description: Description, settings: VibrationSettings, networks: _Networks
) -> JoinedPipeline:
    network = networks.main
    window = _Window.of(settings.width, 1, 1, network)
    if window.rows > 1:
        what = f"its input takes {window.rows} windows of {settings.width} numbers"
        raise UsageError(what, where=network.name if network else "", hint="it runs on one window at a time")
    samples = Value("samples", (settings.frame, settings.axes), DType.FLOAT32)
    steps = GraphSteps(samples, [0], networks.names)
    features = scaled(steps, vibration(steps, settings), description.scaler)
    ends = _Joined(steps, features, window)
    graph = ends.graph(description, networks)
    return JoinedPipeline(graph, settings, settings.frame, settings.hop, 0, 0, 0, description.decision)


def _of_frames(description: Description, settings: ImageSettings, networks: _Networks) -> JoinedPipeline:
    network = networks.main
    if networks.gate is not None:
        raise UsageError(
            "a pipeline of pictures cannot have a gate",
            where="[gate] file",
            hint="leave the [gate] out",
        )
    if network is not None and len(network.inputs) != 1:
        raise UsageError(
            f"the network has {len(network.inputs)} inputs, but a picture goes into one",
            where=network.name,
            hint="export the network with one input",
        )
    target = None if network is None else network.values[network.inputs[0]]
    steps = GraphSteps(frame_value(settings), [0], networks.names)
    made = picture(steps, settings, target)
    if network is None and made is steps.samples:
        hint = "give it a [network], or the picture another size"
        raise UsageError(
            "the picture is the camera's frame as it is, so there is nothing to compute",
            where=description.name,
            hint=hint,
        )
    ends = _Joined(steps, made, _Window(1, 1))
    graph = ends.graph(description, networks)
    rows = settings.frame_height
    return JoinedPipeline(graph, settings, rows, rows, 0, 0, 0, description.decision)


def _of_sound(description: Description, settings: SoundSettings, networks: _Networks) -> JoinedPipeline:
    network = networks.main
    stack = settings.stack if isinstance(settings, MelSettings) else 1
    window = _Window.of(settings.width, stack, description.every, network)
    if networks.gate and _Window.of(settings.width, stack, description.every, networks.gate) != window:
        hint = "both get the same rows of features, and run together"
        raise UsageError(
            "the window of the gate differs from that of [network]", where="[gate] file", hint=hint
        )
    whole = settings.per == "window"
    if whole and network is None and isinstance(settings, MelSettings) and settings.length:
        rows = len(starts_of(settings, settings.length + 2 * lead(settings)))
        window = _Window(rows, window.step)
    history = 0 if whole else _history(settings)
    rows = window.rows if whole else window.step
    steps = _of_windows(settings, rows, networks) if whole else _of_stream(settings, rows, history, networks)
    samples = steps.samples
    quantized = _takes_codes(settings, network)
    if networks.gate is not None and _takes_codes(settings, networks.gate) != quantized:
        hint = "both get the same features: quantise both networks as the preset rounds, or neither"
        raise UsageError("the input of the gate is quantised differently", where="[gate] file", hint=hint)
    features = scaled(steps, features_of(steps, settings, quantized=quantized), description.scaler)
    ends = _Joined(steps, features, replace(window, step=rows))
    graph = ends.graph(description, networks)
    ahead = 0 if whole else lead(settings) - offset(settings)
    return JoinedPipeline(
        graph=graph,
        settings=settings,
        span=samples.elements,
        hop=min(window.step * settings.hop, samples.elements),
        before=history + max(ahead, 0),
        skip=max(-ahead, 0),
        warm=0 if whole else -(-window.rows // window.step) - 1,
        decision=description.decision,
        rounded=_rounding(settings, network, history, description),
    )


def _history(settings: SoundSettings) -> int:
    # Samples before the first frame of a run that pre-emphasis looks at.
    if isinstance(settings, MicroSettings) or not settings.preemphasis:
        return 0
    return int(settings.preemphasis_over == "stream")


def _of_windows(settings: SoundSettings, rows: int, networks: _Networks) -> GraphSteps:
    length = window_length(settings, rows)
    stretches, starts = zip(*stretches_of(settings, length), strict=True)
    return GraphSteps(Value("samples", (length,), DType.INT16), starts, networks.names, stretches)


def _of_stream(settings: SoundSettings, rows: int, history: int, networks: _Networks) -> GraphSteps:
    used = settings.used if isinstance(settings, MelSettings) else settings.frame
    samples = Value("samples", (history + used + (rows - 1) * settings.hop,), DType.INT16)
    return GraphSteps(samples, [history + i * settings.hop for i in range(rows)], networks.names)


def _rounding(
    settings: SoundSettings, network: Graph | None, history: int, description: Description
) -> IntegerRounding | None:
    if network is None or not isinstance(settings, MelSettings):
        return None
    if _takes_codes(settings, network):
        return IntegerRounding(Quant.tensor(settings.quantum, settings.zero_point), DType.INT8, True, history)
    x = _input(network)
    if x.quant is None or x.dtype.itemsize != 1:
        return None
    return IntegerRounding(x.quant, x.dtype, False, history, description.scaler)


def _takes_codes(settings: SoundSettings, network: Graph | None) -> bool:
    # Return whether the network gets the features in int8 as the preset rounds them. Its input decides: int8
    # with the scale and zero point of the preset. Any other network gets the real features that
    # ``Features.transform`` gives for training, quantised as its own input is.
    if network is None or not isinstance(settings, MelSettings) or settings.rounding == "none":
        return False
    x = _input(network)
    own = Quant.tensor(settings.quantum, settings.zero_point)
    return x.dtype is DType.INT8 and x.quant is not None and _is_near(x.quant, own, _CALIBRATED)


def _is_near(one: Quant, other: Quant, within: float) -> bool:
    return one.zero_point == other.zero_point and abs(one.scale / other.scale - 1) < within


def _check_decision(made: JoinedPipeline) -> None:
    decision, graph = made.decision, made.graph
    if decision is None:
        return
    count = made.output.elements - (decision.gate is not None)
    if decision.boxes is not None:
        if not isinstance(made.settings, ImageSettings):
            raise UsageError(
                "boxes need a pipeline of pictures",
                where=f"{graph.name}: [decision] boxes",
                hint="leave boxes out, or begin the pipeline with an [image] table",
            )
        count = layout_of(decision, made.output, graph.name).labels
    for label in decision.labels:
        if label >= count:
            where = f"{graph.name}: [decision] label"
            raise UsageError(
                f"the output has no label {label}: it has {count}, counted from 0",
                where=where,
                hint="name a label that the output has",
            )
    if decision.names and len(decision.names) != count:
        what = f"{len(decision.names)} names for {count} outputs"
        raise UsageError(what, where=f"{graph.name}: [decision] labels", hint="name each output once")
    if decision.top > len(decision.labels or range(count)):
        what = f"the {decision.top} best of {len(decision.labels or range(count))} labels"
        raise UsageError(what, where=f"{graph.name}: [decision] top_k", hint="lower top_k")


def _input(network: Graph | None) -> Value:
    assert network is not None
    return network.values[network.inputs[0]]


@dataclass(frozen=True, slots=True)
class _Window:
    """Window of a network: ``rows`` rows of features, of which ``step`` are new in each run."""

    rows: int
    step: int

    @classmethod
    def of(cls, width: int, stack: int, every: int, network: Graph | None) -> "_Window":
        if network is None:
            return cls(stack, every)
        single = width // stack
        if len(network.inputs) != 1:
            raise UsageError(
                f"the network has {len(network.inputs)} inputs, but features go into one",
                where=network.name,
                hint="export the network with one input",
            )
        x = network.values[network.inputs[0]]
        if x.elements % single:
            what = f"rows of {single} features do not make its input of {shape_text(x.shape)}"
            raise UsageError(what, where=network.name, hint="another preset, or another number of bands")
        rows = x.elements // single
        if network.states:
            if every != 1:
                hint = f"leave it out: it runs whenever its {rows} rows are there"
                raise UsageError(
                    "`every` cannot be used with a stateful network", where="[network] every", hint=hint
                )
            return cls(rows, rows)
        if every > rows:
            raise UsageError(
                f"the network would miss rows: its window has only {rows}",
                where="[network] every",
                hint="lower every to the number of rows, or below",
            )
        return cls(rows, every)


@dataclass(slots=True)
class _Joined:
    # Features, and the network after them.
    steps: GraphSteps
    features: Handle
    window: _Window

    def graph(self, description: Description, networks: _Networks) -> Graph:
        # The graph from samples to what is decided on.
        decision = description.decision
        if networks.main is None:
            output = self._windowed(self.features)
            if decision is None or decision.clusters is None:
                return _named(self.steps.graph(description.name, output), "features")
            return self.steps.graph(description.name, distance(self.steps, output, decision.clusters))
        given, output = self._scores(networks.main, description.output)
        if decision is not None and decision.anomaly == "mse":
            output = mean_square(self.steps, given, output, networks.main.name)
        if decision is not None and decision.clusters is not None:
            output = distance(self.steps, output, decision.clusters)
        if networks.gate is not None and description.beside is not None:
            output = with_gate(self.steps, output, self._gate(networks), description.beside.label)
        return self.steps.graph(description.name, output)

    def _gate(self, networks: _Networks) -> Handle:
        gate, prefix = networks.gate, "gate_"
        assert gate is not None
        if len(gate.inputs) != 1 or gate.values[gate.inputs[0]].elements != _input(networks.main).elements:
            raise UsageError(
                "the input of the gate differs from that of [network]",
                where="[gate] file",
                hint="export both networks with the same input",
            )
        while any(f"{prefix}{name}" in networks.names for name in networks.names):
            prefix += "_"
        return self._scores(_prefixed(gate, prefix), "")[1]

    def _scores(self, network: Graph, output: str) -> tuple[Handle, Handle]:
        # Input of the network, and its output of this name, or the first one.
        x = network.values[network.inputs[0]]
        rows = self._like(x)
        network, _ = run_passes(network, DEFAULT_PASSES)
        slid = self._slid(network)
        if slid is not None:
            network = slid
        else:
            rows = self._windowed(rows)
        entry = network.values[network.inputs[0]]
        given = rows
        if (rows.shape, rows.quant) != (entry.shape, entry.quant):
            given = self.steps.one(Reshape(entry.shape), rows, quant=entry.quant)
        return given, self._appended(network, given, output or network.outputs[0])

    def _like(self, x: Value) -> Handle:
        # The features in the type of the network's input.
        own = self.features.quant
        if self.features.dtype is x.dtype and own is not None and x.quant is not None:
            if _is_near(own, x.quant, _MEANT):
                return self.features
            codes = self.steps.one(Cast(DType.FLOAT32), self.features)
            return self.steps.one(Quantize(x.dtype), codes, quant=x.quant)
        if self.features.dtype is x.dtype:
            return self.features
        if x.dtype is DType.FLOAT32:
            return self.steps.one(Cast(DType.FLOAT32), self.features)
        if self.features.dtype is not DType.FLOAT32 or x.quant is None:
            what = f"its input is {x.dtype.value}, the features are {self.features.dtype.value}"
            raise UsageError(what, where=x.name, hint="export the network with an input of that type")
        return self.steps.one(Quantize(x.dtype), self.features, quant=x.quant)

    def _slid(self, network: Graph) -> Graph | None:
        # The network that computes what is new of its window; None where it has to see all of it.
        shape, window = network.values[network.inputs[0]].shape, self.window
        if window.step == window.rows or network.states:
            return network
        axes = [i for i, length in enumerate(shape) if length == window.rows and set(shape[:i]) <= {1}]
        if not axes:
            return None
        try:
            return slide(network, Sliding(axes[0], window.step))[0]
        except UsageError:
            return None

    def _windowed(self, rows: Handle) -> Handle:
        # The last rows, of which those before are a state.
        kept = self.window.rows - self.window.step
        if kept <= 0:
            return rows
        shape = (kept, *rows.shape[1:])
        start = np.full(shape, start_of_signal(rows), rows.dtype.numpy)
        before = self.steps.state("rows_before", start, rows.quant)
        whole = self.steps.one(Concat(0), before, rows, quant=rows.quant)
        begin = (self.window.step, *([0] * (len(shape) - 1)))
        later = StridedSlice(begin, whole.shape, (1,) * len(shape))
        self.steps.become("rows_before", self.steps.one(later, whole, quant=rows.quant))
        return whole

    def _appended(self, network: Graph, given: Handle, output: str) -> Handle:
        # The network's nodes behind the features; one of its outputs.
        if output not in network.outputs:
            hint = f"it has {', '.join(network.outputs)}"
            raise UsageError(f"the network has no output {output}", where="[network] output", hint=hint)
        entry = network.inputs[0]
        values: Mapping[str, Value] = {n: v for n, v in network.values.items() if n != entry}
        nodes = [_renamed(node, {entry: given.name}) for node in network.nodes]
        states = [(values[before], values.get(after, given)) for before, after in network.states]
        self.steps.append(list(values.values()), nodes, states)
        return values[output]


def _named(graph: Graph, name: str) -> Graph:
    # The graph whose only output has this name.
    (old,) = graph.outputs
    names = {old: name}
    nodes = [
        replace(_renamed(n, names), outputs=tuple(names.get(o, o) for o in n.outputs)) for n in graph.nodes
    ]
    values = [replace(v, name=names.get(v.name, v.name)) for v in graph.values.values()]
    states = [(before, names.get(after, after)) for before, after in graph.states]
    return Graph.build(graph.name, values, nodes, graph.inputs, [name], states)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    return replace(node, inputs=tuple(names.get(n, n) for n in node.inputs))


def _prefixed(graph: Graph, prefix: str) -> Graph:
    # The graph with other names: of values, and of nodes.
    names = {name: prefix + name for name in graph.values}
    nodes = [
        replace(_renamed(n, names), name=prefix + n.name, outputs=tuple(names[o] for o in n.outputs))
        for n in graph.nodes
    ]
    values = [replace(v, name=names[v.name]) for v in graph.values.values()]
    states = [(names[before], names[after]) for before, after in graph.states]
    inputs, outputs = ([names[name] for name in listed] for listed in (graph.inputs, graph.outputs))
    return Graph.build(graph.name, values, nodes, inputs, outputs, states)
