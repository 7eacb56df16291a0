"""From archives of TVM to their networks: what the Relay text says, and what it does not."""

import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.api.tvm.migrate import migrate
from crtgen.api.tvm.relay import read_relay
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.cli.app import app
from tests.support import ROOT, model_path, models_dir

pytestmark = pytest.mark.models

KWS = "kws_c_aot_unpacked_usmp.tar"


def mlf(name: str) -> Path:
    return models_dir().parent / "mlf" / name


def changed(source: Path, target: Path, old: str, new: str) -> Path:
    """The archive with another Relay text."""
    with tarfile.open(source) as before, tarfile.open(target, "w") as after:
        for member in before.getmembers():
            file = before.extractfile(member)
            data = file.read() if file else b""
            if member.name.endswith(".relay"):
                assert old.encode() in data
                data = data.replace(old.encode(), new.encode())
                path = target.with_suffix(".relay")
                path.write_bytes(data)
                after.add(path, member.name)
            else:
                after.addfile(member, before.extractfile(member))
    return target


def test_the_text_of_keyword_spotting() -> None:
    with tarfile.open(mlf(KWS)) as archive:
        file = archive.extractfile("./src/kws.relay")
        assert file is not None
        relay = read_relay(file.read().decode())
    assert relay.arguments["input_1"] == ((1, 49, 10, 1), "int8")
    assert relay.arguments["v_param_19"] == ((12, 64), "int8")
    assert len(relay.arguments) == 21
    assert relay.operators["qnn.conv2d"] == 9
    assert relay.operators["qnn.dense"] == relay.operators["nn.softmax"] == 1
    assert relay.hidden == 18
    assert {("0.0787254", -128), ("0.144693", 14), ("0.00390625", -128)} <= relay.scales
    assert read_relay("nothing").arguments == {}


@pytest.mark.parametrize(
    ("name", "networks"),
    [
        (KWS, ["kws_int8"]),
        ("kws_cmsisnn_m4_aot_usmp.tar", ["kws_int8"]),
        ("kws_llvmthumbcpu_graph_link.tar", ["kws_int8"]),
        ("multi_kws_ad01_c_graph.tar", ["kws_int8", "ad01_int8"]),
    ],
)
def test_the_network_is_found(name: str, networks: list[str]) -> None:
    sources = [model_path(network) for network in ("ic01_int8", "ad01_int8", "kws_int8")]
    found = {m.model: m.source for m in migrate(mlf(name), sources)}
    assert found == {n.removesuffix("_int8"): str(model_path(n)) for n in networks}


def test_the_archive_alone_is_not_enough() -> None:
    text = "20 parameters are folded into its code and the text leaves the values of 18 constants out"
    with pytest.raises(UnsupportedError, match=text) as failed:
        migrate(mlf(KWS), [])
    assert failed.value.hint == "name the file that TVM compiled: --source net.tflite"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("0.0787254f", "0.0787255f", "no tensor has the scale 0.0787255 and the zero point -128"),
        ("Tensor[(12, 64), int8]", "Tensor[(13, 64), int8]", "it has no constant of 832 x int8"),
        (
            "Tensor[(1, 49, 10, 1), int8]",
            "Tensor[(1, 48, 10, 1), int8]",
            "those of the archive 1x48x10x1 int8",
        ),
    ],
)
def test_another_network_is_told(tmp_path: Path, old: str, new: str, why: str) -> None:
    archive = changed(mlf(KWS), tmp_path / "x.tar", old, new)
    with pytest.raises(UnsupportedError, match="none of the sources is the network of the archive") as failed:
        migrate(archive, [model_path("kws_int8")])
    assert why in str(failed.value.hint)


def test_what_is_no_archive_is_refused() -> None:
    digits = ROOT / "demo" / "digits.tflite"
    with pytest.raises(UsageError, match="the file is no archive of models"):
        migrate(digits, [])
    with pytest.raises(UsageError, match="the file is no archive of models"):
        migrate(mlf("operator_add_c.tar"), [])
    with pytest.raises(UsageError, match="a source is a network, not an archive"):
        migrate(mlf(KWS), [mlf(KWS)])


def test_the_command() -> None:
    words = ["migrate", str(mlf(KWS)), "--source", str(model_path("kws_int8")), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.stdout)["models"]
    assert one == {
        "model": "kws",
        "source": str(model_path("kws_int8")),
        "inputs": 1,
        "parameters": 20,
        "scales": 11,
    }
