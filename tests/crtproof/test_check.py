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
from crtgen.proof.certificate import certificate_of
from crtgen.proof.checker import prove
from crtproof.check import FORMAT, Result, check, read_certificate
from crtproof.elf import read_image
from crtproof.model import read_model
from crtproof.values import Refused
from tests.proof.checker.mutations import flipped
from tests.support import ROOT, model_path, nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
M3, M4, M7, M33 = "mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505"


def small() -> bytes:
    """A network of every operator that is followed: convolutions, a sum, pools, RELU, a dense layer."""
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
        Operator("RELU", ["c"], ["r"]),
        Operator("MAX_POOL_2D", ["r"], ["m"], Options("Pool2DOptions", **pool)),
        Operator("AVERAGE_POOL_2D", ["m"], ["p"], Options("Pool2DOptions", **mean)),
        Operator("FULLY_CONNECTED", ["p", "w3", "b3"], ["y"], Options("FullyConnectedOptions")),
    ]
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


def made(model: Path, board: str, folder: Path) -> tuple[Path, Path]:
    """The certificate and the image of a network."""
    require_tool("arm-none-eabi-gcc")
    built = api.load(model).compile(board).generate("standalone").build()
    (folder / "firmware.elf").write_bytes(built.path.read_bytes())
    (folder / "kept.proof").write_bytes(certificate_of(prove(folder / "firmware.elf", model)))
    return folder / "kept.proof", folder / "firmware.elf"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made(DIGITS, M4, tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.tflite"
    path.write_bytes(small())
    return path


@pytest.mark.parametrize("board", [M4, nightly(M33), nightly(M7)])
def test_every_output_is_accepted(board: str, network: Path, tmp_path: Path) -> None:
    found = check(*made(network, board, tmp_path)[:1], network, tmp_path / "firmware.elf")
    assert found.is_accepted, (found.refused, found.layers)
    assert [name for _, name, _, _ in found.layers][:3] == ["CONV_2D", "DEPTHWISE_CONV_2D", "ADD"]
    assert found.instructions == prove(tmp_path / "firmware.elf", network).instructions[1]


@pytest.mark.nightly
@pytest.mark.parametrize("board", [M3, M4])
def test_ad01_is_accepted(board: str, tmp_path: Path) -> None:
    model = model_path("ad01_int8")
    certificate, image = made(model, board, tmp_path)
    found = check(certificate, model, image)
    assert (found.is_accepted, found.accepted) == (True, 640), found.refused


def test_without_any_library(digits: tuple[Path, Path]) -> None:
    """Only the standard library: -S leaves out all packages. Softmax is named."""
    command = [sys.executable, "-S", "-m", "crtproof", str(digits[0]), str(DIGITS), str(digits[1])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 3, run.stderr
    assert run.stdout.endswith("digits: accepted up to layer 6 SOFTMAX, which is not followed\n")
    assert "512 of      512" in run.stdout


def rewritten(certificate: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    said = json.loads(zlib.decompress(certificate.read_bytes()))
    change(said)
    (folder / "changed.proof").write_bytes(zlib.compress(json.dumps(said).encode()))
    return folder / "changed.proof"


def _for(image: Path) -> Callable[[dict[str, Any]], object]:
    # A change as if the certificate were for another image.
    return lambda said: said.update(image_sha256=read_image(image).sha256)


def is_right(found: Result) -> bool:
    return found.is_accepted or found.is_accepted_but_for


@pytest.mark.parametrize("count", [10, nightly(300)])
def test_a_changed_bit_is_not_accepted(count: int, digits: tuple[Path, Path], tmp_path: Path) -> None:
    """In code or constants of the layers: what is accepted the first checker accepts, too."""
    image, numbers = read_image(digits[1]), random.Random(count)
    layers = ("digits_conv", "digits_group", "digits_fully", "digits_dense", "__tvm_param__digits")
    names = [n for n in image.symbols if n.startswith(layers)]
    spans = [image.span(n) for n in names]
    refused = 0
    for _ in range(count):
        first, end = numbers.choice([s for s in spans if s[0] < s[1]])
        at = numbers.randrange(first & ~1, end)
        path = flipped(digits[1], at, numbers.randrange(8), tmp_path)
        try:
            accepted = is_right(check(rewritten(digits[0], tmp_path, _for(path)), DIGITS, path))
        except Refused:
            accepted = False
        refused += not accepted
        assert not accepted or prove(path, DIGITS).is_computed, (hex(at), path)
    assert refused > count * 0.7


def test_a_certificate_without_a_store_is_not_accepted(digits: tuple[Path, Path], tmp_path: Path) -> None:
    less = rewritten(digits[0], tmp_path, lambda said: said["stores"].pop(100))
    assert not is_right(check(less, DIGITS, digits[1]))


@pytest.mark.parametrize(
    "store", [[300, 0, 0], [300, 1, -1], [300, 1, 512], [300, 99, 0], [300, 7, 0], [300, 1], "x", [[], 1, 2]]
)
def test_a_certificate_that_lies(store: object, digits: tuple[Path, Path], tmp_path: Path) -> None:
    """A store that is no output is not accepted, and may be refused."""
    counts = [count for count, _, _ in json.loads(zlib.decompress(digits[0].read_bytes()))["stores"]]
    if isinstance(store, list) and store[0] == 300:
        store = [counts[0], *store[1:]]
    lying = rewritten(digits[0], tmp_path, lambda said: said["stores"].insert(0, store))
    try:
        accepted = check(lying, DIGITS, digits[1]).is_accepted
    except Refused:
        accepted = False
    assert not accepted


def test_files_that_do_not_belong_together(digits: tuple[Path, Path], network: Path, tmp_path: Path) -> None:
    certificate, image = digits
    with pytest.raises(Refused, match="for another network"):
        check(certificate, network, image)
    with pytest.raises(Refused, match="for another image"):
        check(certificate, DIGITS, flipped(image, read_image(image).span("main")[0] & ~1, 0, tmp_path))
    with pytest.raises(Refused, match="is no certificate"):
        check(image, DIGITS, image)
    with pytest.raises(Refused, match="no 32-bit ELF"):
        check(certificate, DIGITS, DIGITS)
    with pytest.raises(Refused, match="no TensorFlow Lite file"):
        read_model(image)


def test_damaged_files_are_refused(digits: tuple[Path, Path], tmp_path: Path) -> None:
    """Each as an error of the checker's own, whatever is cut off or changed."""
    numbers, broken = random.Random(1), tmp_path / "broken"
    refused = 0
    for original, read in ((DIGITS, read_model), (digits[1], read_image), (digits[0], read_certificate)):
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


def test_a_network_with_states_has_no_certificate(digits: tuple[Path, Path]) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="only for networks without states"):
        certificate_of(replace(prove(digits[1], DIGITS), runs=2))


def test_the_format_is_what_is_written(digits: tuple[Path, Path]) -> None:
    said = json.loads(zlib.decompress(digits[0].read_bytes()))
    assert said["format"] == FORMAT
    assert said["model_sha256"] == sha256(DIGITS.read_bytes()).hexdigest()
