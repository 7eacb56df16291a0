"""Copies between a host and the tensors of a server's image."""

import pytest

from crtgen import api
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.reading import read_network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.served import follow_copies
from tests.proof.checker.changed import built_with
from tests.support import ROOT, nightly, require_tool

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
M4 = "mps2_an386"
_SERVER, _MEMORY = "runtime/src/crt_server.c", "runtime/src/crt_memory.c"


def followed(board: str, file: str = "", *changes: tuple[str, str]) -> frozenset[int]:
    """The code of the copies of an image, with texts of one of its files changed."""
    require_tool("arm-none-eabi-gcc")
    generated = api.load(DIGITS).compile(board).generate("server")
    built = built_with(generated, file, *changes) if file else generated.build()
    return follow_copies(read_image(built.path), read_network(DIGITS), "digits")


@pytest.mark.parametrize(
    "board", [M4, "bbc_microbit", nightly("mps2_an385"), nightly("mps2_an505"), nightly("mps3_an547")]
)
def test_copies_of_a_host(board: str) -> None:
    assert len(followed(board)) > 300


def test_an_image_without_a_server() -> None:
    image = api.load(DIGITS).compile(M4).generate("standalone").build()
    assert not follow_copies(read_image(image.path), read_network(DIGITS), "digits")


_COPIED = "(void)memcpy(data, cursor->at, (size_t)size);"
_SENT = "crt_reply_data(server, data, (uint32_t)size);"
_EXECUTOR, _RAN = "runtime/src/crt_executor.c", "server->run_error = model->run();"
_WITHIN = "(size <= (tensors[i].nbytes - offset))"


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        (
            _SERVER,
            _COPIED,
            _COPIED.replace("size);", "size - (size > 9));"),
            "64 bytes to offset 0 of input 0",
        ),
        nightly(_SERVER, _COPIED, _COPIED + " if (size > 4) data[3] ^= (data[4] == 17);", "does not leave"),
        nightly(_SERVER, _COPIED, _COPIED + " data[size] = 0;", "does not leave what it ought to"),
        nightly(_SERVER, _COPIED, "if (server->holders == 0) " + _COPIED, "does not leave what it ought to"),
        (
            _SERVER,
            "data = crt_tensor_bytes(&tensor);\n    error",
            "data = tensor.data;\n    error",
            "offset 63",
        ),
        (
            _SERVER,
            _SENT,
            _SENT.replace("data,", "data + (size == 10),"),
            "10 bytes from offset 0 of output 0",
        ),
        nightly(_SERVER, _SENT, _SENT.replace("data,", "tensor.data,"), "1 bytes from offset 9 of output 0"),
        nightly(_SERVER, _SENT, f"data[0] = 0; {_SENT}", "does not leave what it ought to"),
        (_MEMORY, "tensors[i].nbytes) && " + _WITHIN, "tensors[i].nbytes)", "offset 64 of input 0"),
        # A run of what was set, once.
        (_EXECUTOR, _RAN, f"(void)model->run(); {_RAN}", "crt_executor_run does not call"),
        nightly(_EXECUTOR, _RAN, f"*(uint8_t *)model->inputs[0].data ^= 1u; {_RAN}", "does not call"),
        nightly(_EXECUTOR, _RAN, f"{_RAN} *(uint8_t *)model->outputs[0].data ^= 1u;", "changes what"),
    ],
)
def test_a_wrong_copy(file: str, old: str, new: str, reason: str) -> None:
    """Each ends with the right status for some requests."""
    with pytest.raises(Refusal) as refusal:
        followed(M4, file, (old, new))
    assert reason in str(refusal.value)
