"""Libraries for frameworks: each is compiled as its framework does it, and its example is run."""

import configparser
import io
import json
import os
import re
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

import crtgen
from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards import find_core
from crtgen.cli.app import app
from crtgen.firmware.builder import build_project
from crtgen.firmware.project import FRAMEWORKS, read_manifest
from tests.firmware.project.frameworks import (
    ARDUINO_H,
    ESP_PROJECT,
    ESPHOME_HEADERS,
    ESPHOME_MAIN,
    ESPHOME_MODULES,
    LINK,
    SKETCH_MAIN,
    STARTUP,
    emulated,
    run,
)
from tests.support import ROOT, absent, model_path, nightly, require_tool
from tests.zephyr.workspace import printed, require_workspace, west_build

DIGITS = ROOT / "demo" / "digits.tflite"
FLOAT = ROOT / "demo" / "digits.onnx"
SEMVER = re.compile(r"\d+\.\d+\.\d+")
AS_EXPECTED = "digits: as expected"


def exported(framework: str, directory: Path, *models: Path, board: str = "mps2_an386") -> Path:
    """A library of the models, by default of digits, for a framework."""
    board = "host" if FRAMEWORKS[framework].portable else board
    loaded = [crtgen.load(model) for model in models or (DIGITS,)]
    crtgen.compile(loaded, board).generate("library", framework=framework).extract(directory)
    return directory


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_sources_are_those_of_every_library(framework: str, tmp_path: Path) -> None:
    """Only the wrapper differs."""
    board = "host" if FRAMEWORKS[framework].portable else "mps2_an386"
    plain = crtgen.load(DIGITS).compile(board).generate("library").project.files
    code = {p: d for p, d in plain.items() if p.startswith(("model/", "runtime/include/crt/"))}
    files = crtgen.load(DIGITS).compile(board).generate("library", framework=framework).project.files
    if FRAMEWORKS[framework].flat:
        code = {re.sub("^(model|runtime/include)/", "src/", p): d for p, d in code.items()}
    assert {p: d for p, d in files.items() if p in code} == code
    folders = ("model/", "runtime/", "src/")
    assert {p for p in files if p.startswith(folders) and not p.endswith("LICENSE")} == set(code)
    assert b"crtgen" in files["README.md"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_project_is_renewed_and_built_elsewhere(framework: str, tmp_path: Path) -> None:
    root = exported(framework, tmp_path / "lib")
    manifest = read_manifest(root)
    assert manifest.options.framework == framework
    code = next(path for path in sorted(manifest.files) if path.endswith("/digits.c"))
    (root / code).write_text("edited")
    (root / "README.md").write_text("mine")
    board = "host" if FRAMEWORKS[framework].portable else "mps2_an386"
    made = crtgen.load(DIGITS).compile(board).generate("library", framework=framework)
    assert made.extract(root).kept == ("README.md",)
    assert (root / code).read_text() != "edited"
    with pytest.raises(UsageError, match="the project is a library for") as caught:
        build_project(root)
    assert caught.value.hint == FRAMEWORKS[framework].use


def sketch(library: Path, directory: Path) -> Path:
    """The example as Arduino builds it for a Nano 33 BLE: all files below src/, which is in the path."""
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    directory.mkdir()
    for name, text in (("Arduino.h", ARDUINO_H), ("main.cpp", SKETCH_MAIN), ("startup.c", STARTUP)):
        (directory / name).write_text(text)
    core = ("-mcpu=cortex-m4", "-mfloat-abi=softfp", "-mfpu=fpv4-sp-d16", "-mthumb")
    flags = (*core, "-Os", "-Wall", "-Wextra", "-Werror", f"-I{library / 'src'}", f"-I{directory}")
    c = [str(f) for f in sorted((library / "src").rglob("*")) if f.suffix in (".c", ".S")]
    run("arm-none-eabi-gcc", *flags, "-std=gnu11", "-c", *c, "startup.c", where=directory)
    (example,) = (library / "examples").rglob("*.ino")
    options = ("-std=gnu++14", "-fno-exceptions", "-fno-rtti", "-x", "c++")
    run("arm-none-eabi-g++", *flags, *options, "-c", example, "-o", "sketch.o", where=directory)
    run("arm-none-eabi-g++", *flags, *options, "-c", "main.cpp", where=directory)
    objects = sorted(directory.glob("*.o"))
    run("arm-none-eabi-gcc", *flags, *LINK, *objects, "-o", "sketch.elf", where=directory)
    return directory / "sketch.elf"


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("framework", "model", "lines"),
    [
        ("arduino", DIGITS, ["probabilities: -128 -128 -123 119 -128 -128 -128 -128 -125 -128", AS_EXPECTED]),
        ("arduino", FLOAT, [AS_EXPECTED]),
        ("platformio", DIGITS, [AS_EXPECTED]),
    ],
)
def test_sketches(framework: str, model: Path, lines: list[str], tmp_path: Path) -> None:
    library = exported(framework, tmp_path / "digits", model)
    assert emulated(sketch(library, tmp_path / "sketch"))[-len(lines) :] == lines


def test_what_arduino_knows_of_the_library(tmp_path: Path) -> None:
    root = exported("arduino", tmp_path / "digits")
    parser = configparser.ConfigParser()
    parser.read_string(f"[library]\n{(root / 'library.properties').read_text()}")
    found = dict(parser["library"])
    needed = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"}
    assert needed | {"architectures", "includes", "license"} == set(found)
    assert (found["author"], found["url"]) == ("generated by crtgen", "https://pypi.org/project/crtgen/")
    assert re.fullmatch(r"[A-Za-z0-9][\w .-]*", found["name"])
    assert (found["name"], found["category"], "nrf52" in found["architectures"].split(",")) == (
        "digits",
        "Data Processing",
        True,
    )
    assert (found["includes"], SEMVER.fullmatch(found["version"]) is not None) == ("digits.h", True)
    assert (root / "examples" / "digits" / "digits.ino").is_file()


@pytest.mark.qemu
def test_two_models_for_arduino_have_arenas_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "other.tflite").write_bytes(DIGITS.read_bytes())
    library = exported("arduino", tmp_path / "both", DIGITS, tmp_path / "other.tflite")
    assert not (library / "src" / "crt_arena.c").exists()
    lines = emulated(sketch(library, tmp_path / "sketch"))
    assert [line for line in lines if "expected" in line] == [AS_EXPECTED, "other: as expected"]


@pytest.mark.cc
def test_make_on_this_computer_and_what_the_example_finds(tmp_path: Path) -> None:
    require_tool("make", "apt install make")
    root = exported("make", tmp_path / "lib", board="host")
    strict = "CFLAGS=-Wall -Wextra -Wconversion -Werror"
    run("make", "example", strict, where=root)
    assert run("build/example.elf", where=root) == f"{AS_EXPECTED}\n"
    example = root / "example" / "main.c"
    example.write_text(example.read_text().replace("-123", "-124"))
    run("make", "example", where=root)
    assert run("build/example.elf", where=root, ok=False) == "digits: NOT as expected\n"


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("name", ["digits", nightly("kws_int8")])
def test_make_for_cortex_m(name: str, tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    require_tool("make", "apt install make")
    root = exported("make", tmp_path / "lib", DIGITS if name == "digits" else model_path(name))
    (root / "startup.c").write_text(STARTUP)
    run("make", "-j2", "example", f"LDFLAGS=startup.c {' '.join(LINK)}", where=root)
    assert emulated(root / "build" / "example.elf") == [f"{name}: as expected"]


@pytest.mark.qemu
def test_clang_compiles_the_library(tmp_path: Path) -> None:
    """Arm Compiler 6 is clang, too. GCC links what clang made with the example, as other people's objects."""
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    require_tool("make", "apt install make")
    if find_spec("ziglang") is None:
        absent("ziglang", "pip install ziglang")
    root = exported("make", tmp_path / "lib")
    core = find_core("cortex-m4")
    headers = runtime_dir() / "include" / "freestanding"  # of no C library: Zig has none for Cortex-M
    flags = f"CORE_FLAGS={' '.join(core.zig_flags)} -isystem {headers}"
    clang = f"CC={sys.executable} -m ziglang cc"
    run("make", "-j2", clang, flags, "CFLAGS=-Wall -Wextra -Werror", where=root)
    (root / "startup.c").write_text(STARTUP)
    includes = ("-Imodel", "-Iruntime/include")
    files = ("example/main.c", "startup.c", "build/libdigits.a")
    run("arm-none-eabi-gcc", *core.gcc_flags, *includes, *files, *LINK, "-o", "app.elf", where=root)
    assert emulated(root / "app.elf") == [AS_EXPECTED]


@pytest.mark.cc
def test_two_models_in_a_makefile_share_their_arena(tmp_path: Path) -> None:
    require_tool("make", "apt install make")
    (tmp_path / "other.tflite").write_bytes(DIGITS.read_bytes())
    root = exported("make", tmp_path / "lib", DIGITS, tmp_path / "other.tflite", board="host")
    assert "-DCRT_SHARED_ARENA=" in (root / "Makefile").read_text()
    run("make", "-j2", "example", where=root)
    assert run("build/example.elf", where=root) == f"{AS_EXPECTED}\nother: as expected\n"


@pytest.mark.cc
def test_esp_idf(tmp_path: Path) -> None:
    """The example's own CMake files, with a project.cmake that stands for ESP-IDF's."""
    require_tool("gcc")
    root = exported("esp-idf", tmp_path / "digits")
    idf = tmp_path / "idf" / "tools" / "cmake"
    idf.mkdir(parents=True)
    (idf / "project.cmake").write_text(ESP_PROJECT)
    (tmp_path / "idf" / "main.c").write_text(
        "void app_main(void);\nint main(void) { app_main(); return 0; }\n"
    )
    environment = [
        "env",
        f"IDF_PATH={tmp_path / 'idf'}",
        f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}",
    ]
    source, build = root / "examples" / "digits", tmp_path / "build"
    run(*environment, "cmake", "-S", source, "-B", build, "-G", "Ninja", where=tmp_path)
    run(*environment, "cmake", "--build", build, where=tmp_path)
    assert run(build / "digits_example", where=tmp_path) == f"{AS_EXPECTED}\n"
    component = yaml.safe_load((root / "idf_component.yml").read_text())
    assert SEMVER.fullmatch(component["version"])
    assert component["dependencies"] == {"idf": ">=5.0"}


@pytest.mark.cc
def test_esphome(tmp_path: Path) -> None:
    """The component runs the network at its start, and fails where an output is another."""
    require_tool("g++")
    root = exported("esphome", tmp_path / "lib")
    component = root / "components" / "crtgen_digits"
    core = tmp_path / "esphome" / "core"
    core.mkdir(parents=True)
    for name, text in ESPHOME_HEADERS.items():
        (core / name).write_text(text)
    (tmp_path / "main.cpp").write_text(ESPHOME_MAIN)
    sources = re.findall(r"^    (\S+\.c)$", (root / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert "model/digits.c" in sources
    include = [f"-I{root / 'model'}", f"-I{root / 'runtime/include'}", f"-I{tmp_path}", f"-I{component}"]
    strict = ["-Wall", "-Wextra", "-Werror"]
    run("gcc", "-std=c11", "-O1", "-c", *include, *(root / source for source in sources), where=tmp_path)
    run(
        "g++",
        "-std=gnu++20",
        "-O1",
        "-c",
        *strict,
        *include,
        component / "network.cpp",
        "main.cpp",
        where=tmp_path,
    )
    objects = sorted(tmp_path.glob("*.o"))
    run("g++", "-o", "good", *objects, "-lm", where=tmp_path)
    assert run("./good", where=tmp_path) == "crtgen_digits: digits: as expected\n"
    text = (component / "network.cpp").read_text()
    first = re.search(r"expected_\w+\[\d+\] = \{\s*(-?\d+),", text)
    assert first is not None
    wrong = text[: first.start(1)] + str(int(first[1]) ^ 1) + text[first.end(1) :]
    (component / "network.cpp").write_text(wrong)
    run("g++", "-std=gnu++20", "-c", *include, component / "network.cpp", where=tmp_path)
    run("g++", "-o", "bad", *objects, "-lm", where=tmp_path)
    said = run("./bad", where=tmp_path, ok=False)
    assert said == "crtgen_digits: digits: 1 outputs are NOT as expected\n"
    (tmp_path / "host.py").write_text(ESPHOME_MODULES)
    told = run(sys.executable, "host.py", component / "__init__.py", where=tmp_path)
    assert told == f"['esp32'] crtgen_digits {root.resolve()} 1\n"


def test_cmsis_pack(tmp_path: Path) -> None:
    root = exported("cmsis-pack", tmp_path / "lib")
    package = ElementTree.parse(root / "crtgen.digits.pdsc").getroot()
    assert [package.findtext(tag) for tag in ("vendor", "name")] == ["crtgen", "digits"]
    (release,) = package.iter("release")
    (component,) = package.iter("component")
    version = release.attrib["version"]
    assert SEMVER.fullmatch(version)
    assert [component.get(key) for key in ("Cclass", "Cgroup", "Csub")] == [
        "Machine Learning",
        "Model",
        "digits",
    ]
    assert (component.get("Cversion"), component.get("condition")) == (version, "model")
    compilers = [a.get("Tcompiler") for a in package.findall(".//condition[@id='compiler']/accept")]
    assert compilers == ["GCC", "CLANG", "ARMCC"]
    cores = [(a.get("Dcore"), a.get("Ddsp")) for a in package.findall(".//condition[@id='core']/accept")]
    plain = [("Cortex-M4", None), ("Cortex-M7", None), ("Cortex-M33", "DSP")]
    others = [(f"Cortex-M{core}", None) for core in ("35P", "55", "52", "85")]
    assert cores == [*plain, *others]
    archive = zipfile.ZipFile(io.BytesIO((root / f"crtgen.digits.{version}.pack").read_bytes()))
    for file in component.iter("file"):
        assert any(name.startswith(file.attrib["name"]) for name in archive.namelist()), file.attrib
    compiled = {f.attrib["name"] for f in component.iter("file") if f.attrib["category"].startswith("source")}
    code = {f"model/digits{end}" for end in (".c", "_kernels.c", "_weights.c", "_asm_kernels.S")}
    assert compiled == code | {"example/main.c"}
    assert archive.read("crtgen.digits.pdsc") == (root / "crtgen.digits.pdsc").read_bytes()
    layer = yaml.safe_load((root / "digits.clayer.yml").read_text())["layer"]
    assert {entry["file"] for entry in layer["groups"][0]["files"]} == code
    assert layer["add-path"] == ["model", "runtime/include"]
    assert layer["groups"][0]["optimize"] == "balanced"


@pytest.mark.qemu
def test_what_the_pack_names_is_a_program(tmp_path: Path) -> None:
    """Its sources with its folders of headers, from the archive, as tools for packs do it."""
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    root = exported("cmsis-pack", tmp_path / "lib")
    zipfile.ZipFile(root / "crtgen.digits.1.0.0.pack").extractall(tmp_path / "pack")
    (tmp_path / "pack" / "startup.c").write_text(STARTUP)
    files = [file.attrib for file in ElementTree.parse(root / "crtgen.digits.pdsc").iter("file")]
    folders = [f"-I{file['name']}" for file in files if file["category"] == "include"]
    code = [file["name"] for file in files if file["category"].startswith("source")]
    core = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2")
    where = tmp_path / "pack"
    run("arm-none-eabi-gcc", *core, *folders, *code, "startup.c", *LINK, "-o", "app.elf", where=where)
    assert emulated(where / "app.elf") == [AS_EXPECTED]


@pytest.mark.parametrize("board", ["mps2_an385", "mps3_an547", "rpi_pico", "host"])
def test_cmsis_files_against_their_schemas(board: str, tmp_path: Path) -> None:
    """``CRTGEN_CMSIS_SCHEMAS``: PACK.xsd of Open-CMSIS-Pack-Spec, and *.schema.json of its projmgr."""
    folder = os.environ.get("CRTGEN_CMSIS_SCHEMAS")
    if folder is None:
        pytest.skip("no schemas of CMSIS packs: set CRTGEN_CMSIS_SCHEMAS")
    etree = pytest.importorskip("lxml.etree")
    root = exported("cmsis-pack", tmp_path / "lib", board=board)
    schema = etree.XMLSchema(etree.parse(Path(folder) / "PACK.xsd"))
    assert schema.validate(etree.parse(root / "crtgen.digits.pdsc")), schema.error_log
    check = [sys.executable, "-m", "check_jsonschema", "--regex-variant", "python"]
    base = ["--base-uri", f"{Path(folder).as_uri()}/", "--schemafile", f"{folder}/clayer.schema.json"]
    run(*check, *base, root / "digits.clayer.yml", where=tmp_path)


def test_platformio(tmp_path: Path) -> None:
    """PlatformIO itself reads the manifest, and packs what it names."""
    root = exported("platformio", tmp_path / "lib")
    manifest = json.loads((root / "library.json").read_text())
    assert manifest["authors"][0]["name"] == "generated by crtgen"
    assert (manifest["name"], manifest["headers"], manifest["build"]["flags"]) == (
        "digits",
        ["digits.h"],
        ["-O2"],
    )
    if find_spec("platformio") is None:
        absent("platformio", "pip install platformio")
    home = ["env", f"PLATFORMIO_CORE_DIR={tmp_path / 'home'}", "PLATFORMIO_SETTING_ENABLE_TELEMETRY=no"]
    pack = [sys.executable, "-m", "platformio", "pkg", "pack", "-o", tmp_path / "out.tar.gz"]
    assert "Wrote a tarball" in run(*home, *pack, root, where=tmp_path)
    (root / "library.json").write_text(json.dumps({**manifest, "version": "one"}))
    assert "semantic versioning" in run(*home, *pack, root, where=tmp_path, ok=False)


@pytest.mark.zephyr
def test_zephyr_takes_the_module(tmp_path: Path) -> None:
    """By the script that Zephyr's build asks."""
    workspace = require_workspace()
    root = exported("zephyr-module", tmp_path / "lib", board="mps2_an385")
    script, made = workspace.zephyr / "scripts" / "zephyr_module.py", tmp_path / "modules"
    kconfig = ("--kconfig-out", tmp_path / "kconfig")
    run(
        sys.executable,
        script,
        "--cmake-out",
        made,
        *kconfig,
        "-m",
        root,
        "-z",
        workspace.zephyr,
        where=tmp_path,
    )
    assert f'"digits":"{root}":"{root}/zephyr"' in made.read_text()
    assert f'{root}/zephyr/Kconfig"' in (tmp_path / "kconfig").read_text()


@pytest.mark.zephyr
@pytest.mark.nightly
def test_zephyr_builds_and_runs_the_sample(tmp_path: Path) -> None:
    workspace = require_workspace()
    root = exported("zephyr-module", tmp_path / "lib", board="mps2_an385")
    elf = west_build(workspace, "mps2_an385", root / "samples" / "digits", tmp_path / "build")
    assert AS_EXPECTED in printed(elf, "mps2_an385", AS_EXPECTED)


def command(*words: object) -> str:
    result = CliRunner().invoke(app, ["generate", str(DIGITS), *map(str, words)])
    return result.output


def test_the_command_line(tmp_path: Path) -> None:
    assert "name it in lib_deps" in command(tmp_path / "a", "--for", "platformio", "--core", "cortex-m0plus")
    assert read_manifest(tmp_path / "a").board == "cortex-m0plus"
    assert "is for cortex-m0plus" in (tmp_path / "a" / "src" / "digits_internal.h").read_text()
    assert "components of your project" in command(tmp_path / "b", "--for", "esp-idf")
    assert read_manifest(tmp_path / "b").board == "host"
    assert "did you mean" in command(tmp_path / "c", "--for", "arduino", "--board", "mps2_an366")
    assert "not a cortex-m0plus" in command(
        tmp_path / "c", "--for", "arduino", "--board", "mps2_an386", "--core", "cortex-m0plus"
    )


@pytest.mark.parametrize(
    ("framework", "type", "options", "reason"),
    [
        ("arduino", "server", {}, "arduino takes a library, not a server"),
        ("mbed", "library", {}, "unknown framework mbed"),
        ("make", "library", {"registry": True}, "a library with a registry"),
        ("arduino", "library", {"profile": True}, "which --profile needs"),
        ("arduino", "library", {"share_arena": True}, "which a shared arena needs"),
        ("esp-idf", "library", {}, "runs on no Cortex-M"),
    ],
)
def test_what_is_refused(framework: str, type: str, options: "dict[str, bool]", reason: str) -> None:
    compiled = api.load(DIGITS).compile("mps2_an386")
    with pytest.raises(UsageError, match=reason) as caught:
        compiled.generate(type, framework=framework, **options)  # type: ignore[arg-type]
    assert caught.value.hint
