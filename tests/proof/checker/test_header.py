"""The list of a header's functions in docs/soundness.md, against headers."""

import re
from pathlib import Path
from typing import Any

from crtgen import api
from crtgen.network.passes import Sliding
from tests.network.pipeline.files import marvin
from tests.proof.checker.test_rows import lines
from tests.proof.checker.test_sliding import spotter
from tests.proof.checker.test_states import remembering
from tests.support import ROOT

_LINE = re.compile(r"^\| `<model>_(\w+?)(?:<\w+>)?` \| (yes|no)\b", re.MULTILINE)


def functions(path: Path, **choices: Any) -> set[str]:
    """The functions that the headers of a model's library declare, without the names of tensors."""
    model = api.load(path)
    project = model.compile("mps2_an386", **choices).generate("library").project
    found = set[str]()
    for header in (f"{model.name}.h", f"{model.name}_pipeline.h"):
        text = project.sources.get(f"model/{header}", b"").decode()
        names = re.findall(rf"^[\w ]+?\b\**{model.name}_(\w+)\(", text, re.MULTILINE)
        found |= {re.sub("^((?:de)?quantize_).*", r"\1", name) for name in names}
    return found


def test_functions_of_the_header(tmp_path: Path) -> None:
    """Each is in the list, whether it is followed or not, and the list has no others."""
    listed = dict(_LINE.findall((ROOT / "docs" / "soundness.md").read_text()))
    models = {}
    for name, data in (("lines", lines()), ("remembering", remembering()), ("spotter", spotter())):
        models[name] = tmp_path / f"{name}.tflite"
        models[name].write_bytes(data)
    found = functions(ROOT / "demo" / "digits.tflite")
    assert found == {"run", "step", "quantize_", "dequantize_"}
    found |= functions(models["lines"], feed="rows")
    assert {"push", "restart"} <= found
    found |= functions(models["remembering"])
    found |= functions(models["spotter"], sliding=Sliding(1, 1))
    found |= functions(marvin(tmp_path))
    assert found == listed.keys()
