"""The frameworks for which a library can be made, as data."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FRAMEWORKS", "VENDOR", "Framework", "framework_of"]

VENDOR = "crtgen"
"""Who makes packs of the CMSIS."""


@dataclass(frozen=True, slots=True)
class Framework:
    """The form of a library for a framework.

    ``files`` maps a path to the template that makes it; ``{name}`` in a path is the project's name, and
    ``example`` is the path of the program that runs the models. ``flat``: all sources must be below ``src/``,
    the only folder that the framework compiles. ``options`` false: the framework cannot give the library's
    files their own compiler options. ``portable``: it supports more than Cortex-M. ``entry`` is the name of
    the example's function. ``packs``: the library also comes as one archive. ``use`` tells the user what to
    do next.
    """

    files: Mapping[str, str]
    example: str
    use: str
    flat: bool = False
    options: bool = True
    portable: bool = False
    entry: str = "int main(void)"
    packs: bool = False


_SKETCH = "examples/{name}/{name}.ino"
_PDSC = VENDOR + ".{name}.pdsc"

FRAMEWORKS: Mapping[str, Framework] = {
    "arduino": Framework(
        {"library.properties": "arduino/library.properties", _SKETCH: "sketch.ino"},
        _SKETCH,
        "move it into the folder libraries of your sketchbook",
        flat=True,
        options=False,
    ),
    "platformio": Framework(
        {"library.json": "platformio/library.json", _SKETCH: "sketch.ino"},
        _SKETCH,
        "name it in lib_deps of your platformio.ini",
        flat=True,
    ),
    "cmsis-pack": Framework(
        {
            _PDSC: "cmsis-pack/pack.pdsc",
            "{name}.clayer.yml": "cmsis-pack/layer.clayer.yml",
            "example/main.c": "main.c",
        },
        "example/main.c",
        "name the layer in your cproject.yml, or `cpackget add` the pack",
        packs=True,
    ),
    "esp-idf": Framework(
        {
            "CMakeLists.txt": "esp-idf/CMakeLists.txt",
            "idf_component.yml": "esp-idf/idf_component.yml",
            "examples/{name}/CMakeLists.txt": "esp-idf/example.cmake",
            "examples/{name}/main/CMakeLists.txt": "esp-idf/main.cmake",
            "examples/{name}/main/main.c": "main.c",
        },
        "examples/{name}/main/main.c",
        "move it into the folder components of your project",
        portable=True,
        entry="void app_main(void)",
    ),
    "esphome": Framework(
        {
            "CMakeLists.txt": "esp-idf/CMakeLists.txt",
            "idf_component.yml": "esp-idf/idf_component.yml",
            "components/crtgen_{name}/__init__.py": "esphome/__init__.py",
            "components/crtgen_{name}/network.h": "esphome/network.h",
            "components/crtgen_{name}/network.cpp": "esphome/network.cpp",
        },
        "components/crtgen_{name}/network.cpp",
        "name it in external_components of your device's YAML",
        portable=True,
    ),
    "zephyr-module": Framework(
        {
            "zephyr/module.yml": "zephyr-module/module.yml",
            "zephyr/CMakeLists.txt": "zephyr-module/CMakeLists.txt",
            "zephyr/Kconfig": "zephyr-module/Kconfig",
            "samples/{name}/CMakeLists.txt": "zephyr-module/sample.cmake",
            "samples/{name}/prj.conf": "zephyr-module/prj.conf",
            "samples/{name}/src/main.c": "main.c",
        },
        "samples/{name}/src/main.c",
        "name it in ZEPHYR_EXTRA_MODULES",
    ),
    "make": Framework(
        {"Makefile": "make/Makefile", "example/main.c": "main.c"}, "example/main.c", "run make there"
    ),
}


def framework_of(name: str) -> str:
    """Return the framework called ``name``; for Zephyr this is its module."""
    return "zephyr-module" if name == "zephyr" else name
