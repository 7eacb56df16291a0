"""An image with an NPU from the command line, in QEMU."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.boards import BoardNpu, find_board
from crtgen.cli.app import app
from crtgen.compiler.byoc import read_generator
from crtgen.compiler.tuned import CORE, KernelChoice, Tuned, layer_digest
from crtgen.device.run import fvp
from crtgen.lab.measure.fit import boards_for
from crtgen.lab.measure.verification import cases_of, verify_cases
from tests.npu.shaped import SHAPED
from tests.proof.checker.test_npu import two_calls
from tests.support import ROOT, nightly, require_tool

pytest.importorskip("ethosu")

_DIGITS = ROOT / "demo" / "digits.tflite"
_CASES = ROOT / "demo" / "digits.npz"
_NPU = ("--board", "mps3_an547", "--npu", "ethos-u55-128")


def crtgen(*args: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)


@pytest.mark.qemu
@pytest.mark.parametrize(
    "options",
    [
        ["--executor", "graph", "--place", "npu=ddr"],
        nightly(["--keep-inputs"]),
        nightly(["--place", "arena=ram"]),
        nightly(["--target", "llvm"]),
        nightly(["--optimize", "size"]),
    ],
    ids=" ".join,
)
def test_every_output_is_as_recorded(options: list[str]) -> None:
    result = crtgen("verify", _DIGITS, *_NPU, *options, "--expect", _CASES, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failed"] == 0


@pytest.mark.qemu
def test_a_u65_works_in_a_second_memory() -> None:
    """Feature maps are in the arena, in the slower memory; what it works on is in the faster one."""
    place = ("--place", "arena=ddr", "--place", "npu=ram")
    npu = ("--board", "mps3_an547", "--npu", "ethos-u65-256")
    result = crtgen("verify", _DIGITS, *npu, *place, "--expect", _CASES, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failed"] == 0
    drawn = crtgen("inspect", _DIGITS, *npu, *place, "--arena").stdout
    assert re.search(r"^part of the arena in npu [\d,]+ bytes, the least possible$", drawn, re.MULTILINE)


@pytest.mark.qemu
def test_an_archive_takes_the_driver_along(tmp_path: Path) -> None:
    archive = tmp_path / "digits.tar"
    assert crtgen("compile", _DIGITS, *_NPU, "-o", archive).exit_code == 0
    result = crtgen("verify", archive, "--board", "mps3_an547", "--trust", "--expect", _CASES, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failed"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fit", _DIGITS, "--npu", "ethos-u55-32"], "no board that crtgen knows has the NPU ethos-u55-32"),
        (["fit", _DIGITS, "--npu", "board", "--board", "mps2_an386"], "mps2_an386: the board has no NPU"),
        (["verify", _DIGITS, *_NPU, "--feed", "rows"], "is computed by ethos-u, whose code reads its whole"),
        (["verify", _DIGITS, *_NPU, "--platform", "zephyr"], "on Zephyr the NPU is used by Arm's driver"),
        (["verify", _DIGITS, *_NPU, "--npu-driver", "arm"], "nothing here brings Arm's driver"),
        (["verify", _DIGITS, "--npu-driver", "arm"], "--npu-driver is for --npu"),
        (["verify", _DIGITS, "--board", "host", "--npu", "ethos-u55-128"], "the board has no NPU"),
        (["verify", _DIGITS, *_NPU, "--place", "arena=dtcm"], "the NPU does not reach the memory dtcm"),
        (["verify", _DIGITS, *_NPU, "--place", "npu=dtcm"], "it reaches code, ram, ddr: --place npu=ddr"),
        (["verify", _DIGITS, *_NPU, "--place", "npu=code"], "scratch memory is written, but code is flash"),
        (["verify", _DIGITS, *_NPU[:2], "--place", "npu=ddr"], "no layer goes to one"),
        (
            [
                "inspect",
                _DIGITS,
                *_NPU[:2],
                "--codegen",
                "ethos-u:config=ethos-u55-128,memory=Dedicated_Sram",
            ],
            "the second bus port of a U55 cannot write",
        ),
        (
            ["inspect", _DIGITS, *_NPU[:2], "--codegen", "ethos-u:config=ethos-u65-256,memory=Sram"],
            "known: Shared_Sram, Sram_Only, Dedicated_Sram",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_does_not_go_with_an_npu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = crtgen(*arguments)
    assert result.exit_code in (2, 3)
    assert text in " ".join(result.output.split())


@pytest.mark.qemu
@pytest.mark.nightly
def test_several_models_share_a_driver_and_an_arena(tmp_path: Path) -> None:
    """And one of them has layers on both."""
    calls = tmp_path / "calls.tflite"
    calls.write_bytes(two_calls())
    models = [api.load_network(path) for path in (_DIGITS, calls)]
    npu = [read_generator("ethos-u:config=ethos-u55-128")]
    compiled = api.compile(models, "mps3_an547", generators=npu, fallback=True)
    image = compiled.generate("server").build()
    assert [report.npu["calls"] for report in image.reports if report.npu] == [1, 2]
    with image.run() as session:
        first, second = session.models
        cases = {**cases_of([first], _DIGITS, None, 3), **cases_of([second], calls, None, 3)}
        assert [verdict.difference for verdict in verify_cases(session, cases)] == [None] * 6


def test_the_page_says_what_each_command_does() -> None:
    page = (ROOT / "docs" / "npu.md").read_text()
    rows = page[page.index("| command | with `--npu` |") :].partition("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall("`([a-z]+)`", row.split("|")[1])]
    group = typer.main.get_command(app)
    takes = [
        name
        for name, command in group.commands.items()  # type: ignore[attr-defined]
        if any("--npu" in parameter.opts for parameter in command.params)
    ]
    assert sorted(named) == sorted(takes)


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize("name", SHAPED)
def test_networks_in_known_shapes(tmp_path: Path, name: str) -> None:
    """A MobileNetV2, a SSD and one of int16, all MACs on the NPU."""
    model = tmp_path / "net.tflite"
    model.write_bytes(SHAPED[name]())
    found = json.loads(crtgen("verify", model, *_NPU, "--cases", "2", "--json").stdout)
    assert found["failed"] == 0
    report = json.loads(crtgen("inspect", model, *_NPU, "--json").stdout)
    assert report["npu"]["macs"] == report["macs"]


def test_inspect_shows_both() -> None:
    result = crtgen("inspect", _DIGITS, *_NPU)
    assert result.exit_code == 0, result.output
    assert "ethos-u" in result.output
    assert "NPU: 23,680 of 23,680 MACs (100%) in 1 call" in result.output


def test_fit_shows_boards_with_the_npu_and_velas_cycles() -> None:
    known = ["corstone300_fvp", "corstone310_fvp", "corstone315_fvp", "ek_ra8p1", "mps3_an547"]
    every = boards_for([read_generator("ethos-u:config=board")])
    assert [board.name for board in every] == [*known, "numaker_m55m1"]
    found = json.loads(crtgen("fit", _DIGITS, "--npu", "ethos-u55-128", "--json").stdout)["fits"]
    assert [fit["board"] for fit in found] == ["corstone300_fvp", "corstone310_fvp", "mps3_an547"]
    assert all(fit["fits"] and fit["npu"]["cycles_by_vela"] > 1000 for fit in found)
    assert {fit["energy_uj"] for fit in found} == {None}
    shown = crtgen("fit", _DIGITS, "--core", "cortex-m55", "--npu", "ethos-u55-128").stdout
    assert "NPU cycles: by Vela's estimate" in shown


@pytest.mark.qemu
@pytest.mark.nightly
def test_evidence_names_what_is_trusted(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx")
    pytest.importorskip("vl_convert")
    page, folder = tmp_path / "r.html", tmp_path / "evidence"
    arguments = ("--board", "mps3_an547", "--npu", "board", "--optimize", "size")
    done = crtgen("report", _DIGITS, *arguments, "-o", page, "--evidence", folder, "--json")
    assert done.exit_code == 0, done.output
    claims = {claim["claim"]: claim for claim in json.loads(done.stdout)["claims"]}
    assert all(claim["holds"] for claim in claims.values()), claims
    text = "Each output of the image is the network's, for every input, if the NPU is as crtgen's model of it"
    assert "if the NPU computes the 6 layers of its call" in claims[text]["found"]
    assert "cycles of the NPU, by Vela" in page.read_text()


@pytest.mark.qemu
@pytest.mark.nightly
def test_tune_moves_small_layers_to_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calls.tflite").write_bytes(two_calls())
    done = crtgen("tune", "calls.tflite", *_NPU, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["tuned"] < found["untuned"]
    moved = [layer["name"] for layer in found["layers"] if layer["design"] == "core"]
    assert moved == ["fully_connected", "fully_connected_1"]
    shown = crtgen("inspect", "calls.tflite", *_NPU, "--optimize", "speed", "--tune", "tune.toml")
    assert "the NPU takes none of its layers" in " ".join(shown.output.split())


def test_a_tune_file_leaves_layers_to_the_core() -> None:
    """A layer that is not there any more, or is another one, is an error."""
    graph = api.load_network(_DIGITS).graph
    node = next(node for node in graph.nodes if node.op.name == "softmax")
    choice = KernelChoice(node.name, layer_digest(graph, node), CORE, "any", 0)
    entry = Tuned("digits", "mps3_an547", "balanced", "instructions", 1, 1, (choice,))
    generators = [read_generator("ethos-u:config=ethos-u55-128")]
    compiled = api.load(_DIGITS).compile("mps3_an547", generators=generators, fallback=True, tuned=[entry])
    kernels = [step.kernel.design for step in compiled.plans[0].steps]
    assert kernels[0] == "ethos-u"
    assert kernels[-1] != "ethos-u"
    stale = replace(entry, layers=(replace(choice, digest="0" * 12),))
    with pytest.raises(UsageError, match="it has other shapes or attributes"):
        api.load(_DIGITS).compile("mps3_an547", generators=generators, fallback=True, tuned=[stale])


def test_constants_in_ram_are_not_copied_for_the_npu() -> None:
    """The copies in Vela's scratch are for flash, which is slow."""
    cycles = []
    for place in ((), ("--place", "weights=ram")):
        done = crtgen("inspect", _DIGITS, *_NPU, *place, "--json")
        cycles.append(json.loads(done.stdout)["npu"]["cycles_by_vela"])
    assert cycles[1] < cycles[0]


def test_calls_for_which_the_core_is_faster_are_named(tmp_path: Path) -> None:
    """Two layers of a few multiplications; those of a network of some thousand are for the NPU."""
    (tmp_path / "small.tflite").write_bytes(two_calls())
    place = ("--place", "npu=ram")
    text = crtgen("generate", tmp_path / "small.tflite", tmp_path / "a", *_NPU, *place).output
    shown = " ".join(text.split())
    found = re.search(r"the core takes (\d+) instead of (\d+) for 2 of them: try crtgen tune", shown)
    assert found is not None, shown
    assert int(found[1]) < int(found[2])
    assert "the core takes" not in crtgen("generate", _DIGITS, tmp_path / "b", *_NPU, *place).output


def test_a_board_without_an_npu(tmp_path: Path) -> None:
    result = crtgen("generate", _DIGITS, tmp_path / "p", "--board", "mps2_an386", "--npu", "ethos-u55-128")
    assert result.exit_code == 2
    assert "the board has no NPU" in result.output
    library = crtgen(
        "generate",
        _DIGITS,
        tmp_path / "l",
        "--type",
        "library",
        "--core",
        "cortex-m55",
        "--npu",
        "ethos-u65-256",
    )
    assert library.exit_code == 0, library.output
    assert (tmp_path / "l" / "model" / "external" / "ethos-u" / "src" / "crt_npu.c").is_file()


def test_an_npu_that_nobody_knows(tmp_path: Path) -> None:
    result = crtgen("generate", _DIGITS, tmp_path / "p", "--board", "mps3_an547", "--npu", "ethos-u85-256")
    assert result.exit_code == 2
    assert "ethos-u85-256 has other commands" in " ".join(result.output.split())


@pytest.mark.qemu
def test_what_the_model_refuses_is_said_with_its_offset(tmp_path: Path) -> None:
    """In a project whose stream somebody edited."""
    project = tmp_path / "p"
    assert crtgen("generate", _DIGITS, project, *_NPU).exit_code == 0
    weights = project / "model" / "digits_weights.c"
    text = weights.read_text()
    start = text.index("{", text.index("_stream["))
    first = text.index("0x" if "0x" in text[start : start + 40] else text[start + 1 :].split()[0], start)
    weights.write_text(text[:first] + "1023, " + text[text.index(",", first) + 1 :])
    result = crtgen("verify", project, "--expect", _CASES)
    assert result.exit_code != 0
    assert "the NPU's command stream at 0x0: 0x000003ff is not a command" in " ".join(result.output.split())


@pytest.mark.qemu
def test_the_fvp_learns_the_size_of_the_npu(tmp_path: Path) -> None:
    """From the name of a constant, which tests/silicon finds in an image."""
    source, image = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("const int crt_npu_for_ethos_u55_256 = 1;")
    subprocess.run([require_tool("arm-none-eabi-gcc"), "-c", source, "-o", image], check=True, timeout=60)
    board = find_board("corstone300_fvp")
    assert "ethosu.num_macs=256" in fvp._command(image, Path("FVP"), board, ())
    command = fvp._command(image, Path("FVP"), find_board("corstone315_fvp"), ("uart0.out_file=-",))
    assert command[-3:] == ["mps4_board.subsystem.ethosu.num_macs=256", "-C", "mps4_board.uart0.out_file=-"]


def test_a_network_without_a_layer_for_the_npu_is_noted() -> None:
    result = crtgen("inspect", ROOT / "demo" / "digits.onnx", *_NPU)
    assert result.exit_code == 0, result.output
    assert "the NPU takes none of its layers" in " ".join(result.output.split())


@pytest.mark.qemu
def test_a_board_with_caches_builds() -> None:
    """The port writes back and drops the data cache, and the watchdog's ticks fit into 32 bits."""
    npu = BoardNpu("ethos-u55-128", 0x4010_0000, 30, seconds=60)
    board = replace(find_board("ek_ra8m1"), npu=npu)
    generators = [read_generator("ethos-u:config=ethos-u55-128")]
    compiled = api.load(_DIGITS).compile(board, generators=generators, fallback=True)
    project = compiled.generate("server")
    port = bytes(b"".join(project.project.files.pieces("platform/npu.c"))).decode()
    assert "crt_npu_invalidate(uintptr_t start" in port
    assert "crt_npu_limit = 2147483647u;" in port
    image = project.build()
    assert image.path.is_file()
    assert compiled.footprint("server").flash == pytest.approx(image.size.sizes.flash, rel=0.03)


def test_another_configuration_than_the_boards_is_noted(tmp_path: Path) -> None:
    arguments = ("--board", "mps3_an547", "--npu", "ethos-u65-256")
    result = crtgen("generate", _DIGITS, tmp_path / "p", *arguments)
    assert result.exit_code == 0, result.output
    assert "is an ethos-u55-128: only simulators run what is for ethos-u65-256" in " ".join(
        result.output.split()
    )


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["server", "standalone"])
def test_the_estimated_ram_is_exact(kind: str) -> None:
    """The arena's size is no multiple of 8, as the alignment of the driver's variables behind it."""
    compiled = api.load(_DIGITS).compile(
        "mps3_an547",
        generators=[read_generator("ethos-u:config=ethos-u55-128")],
        fallback=True,
        place={"npu": "ddr"},
    )
    arena = compiled.plans[0].arena
    assert -(-arena // 4) % 2 == 1
    expected = compiled.footprint(kind)
    assert compiled.generate(kind).build().size.sizes.ram == expected.ram
    guards = 32 if kind == "server" else 0
    assert expected.memories["ddr"] == compiled.plans[0].parts["npu"].size + guards
