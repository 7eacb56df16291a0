"""The library face of crtgen: each product has one method that makes the next.

::

    import crtgen

    model = crtgen.load("kws.tflite")
    image = model.compile(board="mps2_an386").generate().build()
    with image.run() as session:
        y = session.infer(x)
"""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.api.compiled import Compiled
    from crtgen.api.image import Extracted, GeneratedProject, Image, Say, open_project, require_trust
    from crtgen.api.model import Imported, Model, compile, load, load_network
    from crtgen.api.signals import Pipeline

__all__ = [
    "Compiled",
    "Extracted",
    "GeneratedProject",
    "Image",
    "Imported",
    "Model",
    "Pipeline",
    "Say",
    "compile",
    "load",
    "load_network",
    "open_project",
    "require_trust",
]

__getattr__ = on_demand(__name__, __file__)
