"""Cached limits for ``generate --watch``: computing them from a million windows takes seconds.

Each is a file in ``$XDG_CACHE_HOME/crtgen/limits``, named by a digest of everything that the limits depend
on: crtgen itself, the usual runs, the code of the model, the layers. Its first line is the user's mark of the
rest, as for cached images.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from crtgen import api
from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.resources import code_digest
from crtgen.cli.kept import by_age, cache_folder
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.lab.measure.drift import usual

__all__ = ["limits_of"]

_ADAPTER = TypeAdapter(DriftReference)
_MOST = 64  # files that are kept, the newest: 3 KB each


def limits_of(file: Path, layers: Sequence[str], compiled: "api.Compiled") -> DriftReference:
    """Return the drift reference of the only model, computed from a file of usual runs or read from the
    cache.
    """
    (module,), (plan,) = compiled.modules, compiled.plans
    code = hashlib.sha256()
    for name, text in sorted(module.files.items()):
        code.update(f"{name}\0{len(text)}\0{text}".encode())
    parts = (code_digest(), files.digest(file), code.hexdigest(), repr(module.info), *layers)
    name = hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()
    path = cache_folder() / "limits" / f"{name}.json"
    found = _read(path)
    if found is None:
        found = usual(file, module.info, plan, layers)
        _write(path, found)
    return found


def _read(path: Path) -> DriftReference | None:
    text = trust.read_marked(path)
    if text is None:
        return None
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError:  # a disk that was full
        return None


def _write(path: Path, reference: DriftReference) -> None:
    # What cannot be kept is drawn again the next time.
    text = _ADAPTER.dump_json(reference)
    mark = trust.Seal(path).mark([text])
    if not mark:
        return
    with suppress(UsageError):
        files.make_directory(path.parent)
        files.write(path, [mark.encode(), b"\n", text], durable=False)
        for old in by_age(path.parent.glob("*.json"))[:-_MOST]:
            files.remove(old)
