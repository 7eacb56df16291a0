"""The software bill of materials of an image, in CycloneDX 1.6."""

import hashlib
from collections.abc import Collection
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.version import __version__
from crtgen.firmware.builder import Toolchain

__all__ = ["bill_of_materials"]

_LIBRARIES = {
    "libc": ("newlib", "BSD-3-Clause"),
    "libgcc": ("libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1"),
}


def bill_of_materials(model: Path, image: Path, toolchain: Toolchain, libraries: Collection[str]) -> str:
    """List the image with its SHA-256, and its components: the model, crtgen's runtime, the compiler's
    libraries.

    The compiler is listed as a tool. ``libraries`` are those of ``_LIBRARIES`` that are linked.
    """
    try:
        from cyclonedx.model import HashAlgorithm, HashType
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.license import LicenseExpression
        from cyclonedx.output.json import JsonV1Dot6
    except ImportError as error:
        raise UsageError(
            "evidence needs cyclonedx-python-lib", hint="pip install 'crtgen[report]'"
        ) from error

    def made(
        name: str, kind: ComponentType, version: str = "", licence: str = "", path: Path | None = None
    ) -> Component:
        digest = [] if path is None else [hashlib.sha256(files.read(path)).hexdigest()]
        return Component(
            name=name,
            type=kind,
            version=version or None,
            bom_ref=name,
            licenses=[LicenseExpression(licence)] if licence else [],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content) for content in digest],
        )

    root = made(f"{model.stem} firmware", ComponentType.FIRMWARE, path=image)
    parts = [
        made(model.name, ComponentType.MACHINE_LEARNING_MODEL, path=model),
        made("crt", ComponentType.LIBRARY, __version__, "Apache-2.0"),
        *(
            made(*_LIBRARIES[name][:1], ComponentType.LIBRARY, "", _LIBRARIES[name][1])
            for name in sorted(libraries)
        ),
    ]
    bom = Bom(components=parts)
    bom.metadata.component = root
    bom.metadata.tools.components.add(made("crtgen", ComponentType.APPLICATION, __version__, "Apache-2.0"))
    bom.metadata.tools.components.add(made(toolchain.name, ComponentType.APPLICATION, toolchain.version))
    bom.register_dependency(root, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
