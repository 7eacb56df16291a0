"""Write the software bill of materials of a wheel, in CycloneDX's JSON: ``python ci/sbom.py WHEEL > FILE``.

What the wheel needs is what is installed beside it: run it in an environment that the wheel is installed in.
"""

import hashlib
import os
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path
from time import time
from uuid import NAMESPACE_OID, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

__all__ = ["bill_of_materials"]


def bill_of_materials(wheel: Path) -> str:
    """The bill of the wheel: itself with its SHA-256, what it needs, and what those need.

    Its number follows from the wheel, and its time is ``SOURCE_DATE_EPOCH``: two releases of one commit are
    equal.
    """
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", time())), UTC)
    bom = Bom(serial_number=uuid5(NAMESPACE_OID, digest), metadata=BomMetaData(timestamp=made))
    found: dict[str, Component] = {}
    root = _component(bom, distribution("crtgen"), found)
    bom.components.discard(root)  # before it changes, by which it would no longer be found
    root.type = ComponentType.APPLICATION
    root.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=digest))
    bom.metadata.component = root
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _component(bom: Bom, package: Distribution, found: dict[str, Component]) -> Component:
    name = _normal(package.name)
    if name in found:
        return found[name]
    made = Component(
        name=name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}=={package.version}",
        purl=PackageURL("pypi", name=name, version=package.version),
    )
    found[name] = made
    bom.components.add(made)
    needs = [r for r in map(Requirement, package.requires or ()) if r.marker is None or r.marker.evaluate()]
    parts = [_component(bom, distribution(r.name), found) for r in needs]
    bom.register_dependency(made, parts)
    return made


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.stdout.write(bill_of_materials(Path(sys.argv[1])))
