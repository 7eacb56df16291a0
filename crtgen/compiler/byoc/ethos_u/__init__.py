"""Ethos-U as a code generator: layers that the NPU computes, with Vela's command streams."""

from crtgen.compiler.byoc.ethos_u.generator import ARM_DRIVER, DRIVERS, ETHOS_U, THE_BOARDS, EthosU

__all__ = ["ARM_DRIVER", "DRIVERS", "ETHOS_U", "THE_BOARDS", "EthosU"]
