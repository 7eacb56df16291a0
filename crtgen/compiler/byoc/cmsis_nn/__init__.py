"""CMSIS-NN as a code generator."""

from crtgen.compiler.byoc.cmsis_nn.generator import CMSIS_NN, CmsisNn

__all__ = ["CMSIS_NN", "CmsisNn"]
