"""crtgen's firmware for TVM's micro host: a transport, and the project API."""

from crtgen.api.tvm.transport import IoTimeoutError, Transport, TransportClosedError, transport
from crtgen.base.resources import microtvm_dir

__all__ = ["TEMPLATE", "IoTimeoutError", "Transport", "TransportClosedError", "transport"]

TEMPLATE = microtvm_dir()
"""The folder that ``tvmc micro create-project ... template --template-dir`` takes."""
