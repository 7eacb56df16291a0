"""Images that the second checker accepts, and images and certificates that were changed."""

import json
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.boards import find_board
from crtgen.proof.certificate import certificate_of
from crtgen.proof.checker import prove
from crtgen.proof.refute import refute
from crtproof.check import FORMAT, Result, check, read_certificate
from crtproof.compare import Entry
from crtproof.elf import read_image
from crtproof.layers import Softmax
from crtproof.model import read_model
from crtproof.rows import Rows, finder
from crtproof.values import Refused
from tests.proof.checker.mutations import flipped
from tests.support import ROOT, model_path, nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
M3, M4, M7, M33 = "mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505"


def small(addition: bool = True) -> bytes:
    """A network of every operator that is followed but softmax.

    An ADD is the slowest of them: all 65,536 pairs are compared.
    """
    numbers = np.random.default_rng(7)

    def tensor(name: str, shape: tuple[int, ...], scale: float, zero: int) -> Tensor:
        return Tensor(name, shape, "int8", [scale], [zero])

    def weights(name: str, shape: tuple[int, ...], channels: int, axis: int = 0) -> Tensor:
        scales = [0.003 + 0.0004 * c for c in range(channels)]
        data = numbers.integers(-127, 128, shape).astype(np.int8)
        return Tensor(name, shape, "int8", scales, [0] * channels, axis, data)

    def bias(name: str, count: int) -> Tensor:
        data = numbers.integers(-2000, 2000, count).astype(np.int32)
        return Tensor(name, (count,), "int32", [1e-4], [0], data=data)

    tensors = [
        *(tensor("x", (1, 6, 5, 3), 0.04, -5), weights("w1", (8, 3, 3, 3), 8), bias("b1", 8)),
        *(tensor("a", (1, 6, 5, 8), 0.05, -10), weights("w2", (1, 3, 3, 8), 8, 3), bias("b2", 8)),
        *(tensor("b", (1, 6, 5, 8), 0.03, 4), tensor("c", (1, 6, 5, 8), 0.06, 7)),
        *(tensor("r", (1, 6, 5, 8), 0.05, -128), tensor("m", (1, 3, 2, 8), 0.05, -128)),
        *(tensor("p", (1, 1, 1, 8), 0.05, -128), weights("w3", (4, 8), 1), bias("b3", 4)),
        tensor("y", (1, 4), 0.05, 3),
    ]
    same = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    pool = {"Padding": 1, "FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    mean = {"Padding": 1, "FilterHeight": 3, "FilterWidth": 2, "StrideH": 3, "StrideW": 2}
    depthwise = Options("DepthwiseConv2DOptions", **same, DepthMultiplier=1, FusedActivationFunction=0)
    operators = [
        Operator("CONV_2D", ["x", "w1", "b1"], ["a"], Options("Conv2DOptions", **same)),
        Operator("DEPTHWISE_CONV_2D", ["a", "w2", "b2"], ["b"], depthwise),
        Operator("ADD", ["a", "b"], ["c"], Options("AddOptions")),
        Operator("RELU", ["c" if addition else "b"], ["r"]),
        Operator("MAX_POOL_2D", ["r"], ["m"], Options("Pool2DOptions", **pool)),
        Operator("AVERAGE_POOL_2D", ["m"], ["p"], Options("Pool2DOptions", **mean)),
        Operator("FULLY_CONNECTED", ["p", "w3", "b3"], ["y"], Options("FullyConnectedOptions")),
    ]
    if not addition:
        tensors = [t for t in tensors if t.name != "c"]
        operators = [o for o in operators if o.code != "ADD"]
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


def classifier(classes: int) -> bytes:
    """A dense layer and a softmax, of which each class is run for 256 differences."""
    weights = np.random.default_rng(7).integers(-127, 128, (classes, 4)).astype(np.int8)
    tensors = [
        Tensor("x", (1, 4), "int8", [0.04], [-5]),
        Tensor("w", (classes, 4), "int8", [0.003], [0], data=weights),
        Tensor("b", (classes,), "int32", [1e-4], [0], data=np.arange(classes, dtype=np.int32) * 700),
        Tensor("y", (1, classes), "int8", [0.05], [3]),
        Tensor("s", (1, classes), "int8", [1 / 256], [-128]),
    ]
    operators = [
        Operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"], Options("FullyConnectedOptions")),
        Operator("SOFTMAX", ["y"], ["s"], Options("SoftmaxOptions", Beta=1.0)),
    ]
    return Model(tensors, operators, ["x"], ["s"]).to_bytes()


def made(model: Path, board: str, folder: Path) -> tuple[Path, Path]:
    """The certificate and the image of a network."""
    require_tool("arm-none-eabi-gcc")
    built = api.load(model).compile(board).generate("standalone").build()
    (folder / "firmware.elf").write_bytes(built.path.read_bytes())
    (folder / "kept.proof").write_bytes(certificate_of(prove(folder / "firmware.elf", model)))
    return folder / "kept.proof", folder / "firmware.elf"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.tflite"
    path.write_bytes(small(addition=False))
    return path


@pytest.fixture(scope="module")
def built(network: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made(network, M4, tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("board", [M4, nightly(M3), nightly(M33), nightly(M7)])
def test_every_output_is_accepted(board: str, tmp_path: Path) -> None:
    network = tmp_path / "small.tflite"
    network.write_bytes(small())
    found = check(*made(network, board, tmp_path)[:1], network, tmp_path / "firmware.elf")
    assert found.is_accepted, (found.refused, found.layers)
    assert [name for _, name, _, _ in found.layers][:3] == ["CONV_2D", "DEPTHWISE_CONV_2D", "ADD"]
    assert found.instructions == prove(tmp_path / "firmware.elf", network).instructions[1]


def _few(programs: tuple[tuple[Entry, ...], ...], count: int) -> Callable[..., tuple[int | None, int, int]]:
    # Looks at the first and the last sums of each length only.
    find = finder(programs, count)

    def found(first: int, end: int, *args: object) -> tuple[int | None, int, int]:
        a, b = find(first, min(end, first + 300), *args), find(max(first, end - 300), end, *args)
        return a[0] if b[0] is None else b[0], min(a[1], b[1]), max(a[2], b[2])

    return found


@pytest.fixture
def softmax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network with a softmax, of which few sums and differences are tried: digits is tried in full."""
    monkeypatch.setattr("crtproof.rows.finder", _few)
    monkeypatch.setattr("crtproof.rows._TRIED", {})
    along = Rows._along

    def some(self: Rows, program: tuple[Entry, ...], layer: Softmax, d: int, *rest: Any) -> None:
        if d % 64 == 0:
            along(self, program, layer, d, *rest)

    monkeypatch.setattr(Rows, "_along", some)
    (tmp_path / "small.tflite").write_bytes(classifier(2))
    return tmp_path / "small.tflite"


@pytest.mark.parametrize("board", [M4, nightly(M33), nightly(M7)])
def test_softmax_is_accepted(board: str, softmax: Path, tmp_path: Path) -> None:
    """Its branches depend on differences and on the sum of powers."""
    found = check(*made(softmax, board, tmp_path)[:1], softmax, tmp_path / "firmware.elf")
    assert found.is_accepted, (found.refused, found.layers)
    assert found.layers[-1] == (1, "SOFTMAX", 2, 2)
    proof = prove(tmp_path / "firmware.elf", softmax)
    assert proof.instructions[0] <= found.instructions <= proof.instructions[1]


@pytest.mark.nightly
def test_a_changed_bit_of_softmax(softmax: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that is accepted after a few differences is accepted by the first checker, or refused after
    all of them, unless the bit is in code that never runs.
    """
    certificate, elf = made(softmax, M4, tmp_path)
    count = 100
    image, numbers = read_image(elf), random.Random(count)
    spans = [image.span(n) for n in image.symbols if n.startswith("small_softmax")]
    refused, asked = 0, list[Path]()
    for _ in range(count):
        first, end = numbers.choice([s for s in spans if s[0] < s[1]])
        path = flipped(elf, numbers.randrange(first & ~1, end), numbers.randrange(8), tmp_path)
        try:
            accepted = check(rewritten(certificate, tmp_path, _for(path)), softmax, path).is_accepted
        except Refused:
            accepted = False
        refused += not accepted
        if accepted and not prove(path, softmax).is_computed:
            asked.append(path.rename(tmp_path / f"asked{len(asked)}.elf"))
    assert refused >= count * 0.6
    monkeypatch.undo()
    for path in asked:
        found = check(rewritten(certificate, tmp_path, _for(path)), softmax, path)
        assert not found.is_accepted or is_not_wrong(path, softmax), path


@pytest.mark.nightly
@pytest.mark.parametrize("board", [M3, M4, M33])
def test_digits_is_accepted(board: str, tmp_path: Path) -> None:
    certificate, image = made(DIGITS, board, tmp_path)
    assert check(certificate, DIGITS, image).is_accepted


@pytest.mark.nightly
@pytest.mark.parametrize("board", [M3, M4])
def test_ad01_is_accepted(board: str, tmp_path: Path) -> None:
    model = model_path("ad01_int8")
    certificate, image = made(model, board, tmp_path)
    found = check(certificate, model, image)
    assert (found.is_accepted, found.accepted) == (True, 640), found.refused


def test_without_any_library(built: tuple[Path, Path], network: Path) -> None:
    """Only the standard library: -S leaves out all packages."""
    command = [sys.executable, "-S", "-m", "crtproof", str(built[0]), str(network), str(built[1])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("small: accepted, 4 of 4 outputs\n")
    assert "240 of      240" in run.stdout


def test_a_layer_that_is_not_followed(tmp_path: Path) -> None:
    """Outputs of the layers before it are found, and it is named."""
    x = Tensor("x", (1, 4, 4, 8), "int8", [0.05], [-3])
    y, z = (
        Tensor("y", (1, 2, 2, 8), "int8", [0.05], [-3]),
        Tensor("z", (1, 2, 2, 8), "int8", [1 / 256], [-128]),
    )
    pool = {"Padding": 1, "FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    operators = [
        Operator("MAX_POOL_2D", ["x"], ["y"], Options("Pool2DOptions", **pool)),
        Operator("LOGISTIC", ["y"], ["z"]),
    ]
    path = tmp_path / "left.tflite"
    path.write_bytes(Model([x, y, z], operators, ["x"], ["z"]).to_bytes())
    certificate, image = made(path, M4, tmp_path)
    found = check(certificate, path, image)
    assert (found.is_accepted, found.is_accepted_but_for, found.left) == (False, True, ("1 LOGISTIC",))
    assert found.layers[0] == (0, "MAX_POOL_2D", 32, 32)

    def without(said: dict[str, Any]) -> None:
        said["stores"] = [s for s in said["stores"] if s[1] != 2]

    # A certificate that does not name the layer's outputs: the run comes to its end.
    known = check(rewritten(certificate, tmp_path, without), path, image)
    assert (known.refused, known.is_accepted, known.is_accepted_but_for) == ("", False, True)

    def less(said: dict[str, Any]) -> None:
        without(said)
        said["stores"].pop(7)

    missing = check(rewritten(certificate, tmp_path, less), path, image)
    assert (missing.is_accepted, missing.is_accepted_but_for) == (False, False)
    assert missing.missing == "layer 0, MAX_POOL_2D: 31 of 32 outputs are found"


def rewritten(certificate: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    said = json.loads(zlib.decompress(certificate.read_bytes()))
    change(said)
    (folder / "changed.proof").write_bytes(zlib.compress(json.dumps(said).encode()))
    return folder / "changed.proof"


def _for(image: Path) -> Callable[[dict[str, Any]], object]:
    # A change as if the certificate were for another image.
    return lambda said: said.update(image_sha256=read_image(image).sha256)


def is_not_wrong(image: Path, network: Path) -> bool:
    """The first checker accepts the image, or no input with a wrong output is found."""
    proof = prove(image, network)
    return proof.is_computed or not refute(proof, image, find_board(M4)).inputs


def is_right(found: Result) -> bool:
    return found.is_accepted or found.is_accepted_but_for


@pytest.mark.parametrize("count", [8, nightly(300)])
def test_a_changed_bit_is_not_accepted(
    count: int, built: tuple[Path, Path], network: Path, tmp_path: Path
) -> None:
    """In code or constants of the layers: what is accepted the first checker accepts, too. NOPs that fill
    words behind functions are left out: an IT there never runs, but objdump reads the next function by it.
    """
    image, numbers = read_image(built[1]), random.Random(count)
    layers = ("small_conv", "small_depth", "small_add", "small_fully", "small_soft", "__tvm_param__small")
    names = [n for n in image.symbols if n.startswith(layers)]
    spans = [image.span(n) for n in names]
    refused = 0
    for _ in range(count):
        first, end = numbers.choice([s for s in spans if s[0] < s[1]])
        at, bit = numbers.randrange(first & ~1, end), numbers.randrange(8)
        if image.constant(at & ~1, 2) == 0xBF00:
            refused += 1
            continue
        path = flipped(built[1], at, bit, tmp_path)
        try:
            accepted = is_right(check(rewritten(built[0], tmp_path, _for(path)), network, path))
        except Refused:
            accepted = False
        refused += not accepted
        assert not accepted or prove(path, network).is_computed, (hex(at), path)
    assert refused >= count * 0.6


def test_a_certificate_without_a_store_is_not_accepted(
    built: tuple[Path, Path], network: Path, tmp_path: Path
) -> None:
    less = rewritten(built[0], tmp_path, lambda said: said["stores"].pop(100))
    assert not is_right(check(less, network, built[1]))


@pytest.mark.parametrize(
    "store", [[300, 0, 0], [300, 1, -1], [300, 1, 512], [300, 99, 0], [300, 4, 0], [300, 1], "x", [[], 1, 2]]
)
def test_a_certificate_that_lies(
    store: object, built: tuple[Path, Path], network: Path, tmp_path: Path
) -> None:
    """A store that is no output is not accepted, and may be refused."""
    counts = [count for count, _, _ in json.loads(zlib.decompress(built[0].read_bytes()))["stores"]]
    if isinstance(store, list) and store[0] == 300:
        store = [counts[0], *store[1:]]
    lying = rewritten(built[0], tmp_path, lambda said: said["stores"].insert(0, store))
    try:
        accepted = check(lying, network, built[1]).is_accepted
    except Refused:
        accepted = False
    assert not accepted


def test_files_that_do_not_belong_together(built: tuple[Path, Path], network: Path, tmp_path: Path) -> None:
    certificate, image = built
    with pytest.raises(Refused, match="for another network"):
        check(certificate, DIGITS, image)
    with pytest.raises(Refused, match="for another image"):
        check(certificate, network, flipped(image, read_image(image).span("main")[0] & ~1, 0, tmp_path))
    with pytest.raises(Refused, match="is no certificate"):
        check(image, network, image)
    with pytest.raises(Refused, match="no 32-bit ELF"):
        check(certificate, network, network)
    with pytest.raises(Refused, match="no TensorFlow Lite file"):
        read_model(image)


def test_a_core_that_lacks_instructions(built: tuple[Path, Path], network: Path, tmp_path: Path) -> None:
    """Products of two halves are not of Armv7-M, whose number is 10; 13 is Armv7E-M, and 12 Armv6-M."""
    image = built[1].read_bytes()
    at = image.index(b"\x06\x0d", image.index(b"aeabi\0"))
    other = tmp_path / "other.elf"
    other.write_bytes(image[: at + 1] + b"\x0a" + image[at + 2 :])
    found = check(built[0], network, other)
    assert not is_right(found)
    assert found.refused.endswith("which the core does not have: it is of DSP")
    other.write_bytes(image[: at + 1] + b"\x0c" + image[at + 2 :])
    with pytest.raises(Refused, match="is for a core of another architecture"):
        check(built[0], network, other)


def test_damaged_files_are_refused(built: tuple[Path, Path], network: Path, tmp_path: Path) -> None:
    """Each as an error of the checker's own, whatever is cut off or changed."""
    numbers, broken = random.Random(1), tmp_path / "broken"
    refused = 0
    for original, read in ((network, read_model), (built[1], read_image), (built[0], read_certificate)):
        data = original.read_bytes()
        for _ in range(60):
            damaged = bytearray(data[: numbers.randrange(1, len(data))])
            for _ in range(3):
                damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
            broken.write_bytes(damaged)
            try:
                read(broken)
            except Refused:
                refused += 1
    assert refused > 120


def test_a_network_with_states_has_no_certificate(built: tuple[Path, Path], network: Path) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="only for networks without states"):
        certificate_of(replace(prove(built[1], network), runs=2))


def test_the_format_is_what_is_written(built: tuple[Path, Path], network: Path) -> None:
    said = json.loads(zlib.decompress(built[0].read_bytes()))
    assert said["format"] == FORMAT
    assert said["model_sha256"] == sha256(network.read_bytes()).hexdigest()
