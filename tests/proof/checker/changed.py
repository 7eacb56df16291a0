"""Images whose generated code was changed, as an attack or a fault would."""

from dataclasses import replace

from crtgen import api
from crtgen.base.contents import Contents


def built_with(
    generated: api.GeneratedProject, file: str, *changes: tuple[str, str], count: int | None = 1
) -> api.Image:
    """Build a project with texts of one of its files changed: each is there ``count`` times, None for any.

    The image's folder is deleted with the object.
    """
    text = generated.project.sources[file].decode()
    for old, new in changes:
        assert old in text if count is None else text.count(old) == count, old
        text = text.replace(old, new)
    sources = Contents({**generated.project.sources, file: text.encode()})
    return replace(generated, project=replace(generated.project, sources=sources)).build()
