"""External code generators: their interface, the division of graphs among them, and those of crtgen's own."""

from crtgen.byoc.ccompiler import CCompiler
from crtgen.byoc.cmsis_nn import CMSIS_NN, CmsisNn
from crtgen.byoc.example import ExampleJson, to_example_json
from crtgen.byoc.external import External, constants_of
from crtgen.byoc.find import GROUP, find_generator, generator_names, read_generator
from crtgen.byoc.generator import Generated, Generator, Pattern
from crtgen.byoc.partition import partition

__all__ = [
    "CMSIS_NN",
    "GROUP",
    "CCompiler",
    "CmsisNn",
    "ExampleJson",
    "External",
    "Generated",
    "Generator",
    "Pattern",
    "constants_of",
    "find_generator",
    "generator_names",
    "partition",
    "read_generator",
    "to_example_json",
]
