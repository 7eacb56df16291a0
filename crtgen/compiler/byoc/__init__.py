"""External code generators: their interface, the partition of graphs among them, and those included with
crtgen.
"""

from crtgen.compiler.byoc.ccompiler import CCompiler
from crtgen.compiler.byoc.cmsis_nn import CMSIS_NN, CmsisNn
from crtgen.compiler.byoc.ethos_u import ARM_DRIVER, DRIVERS, ETHOS_U, THE_BOARDS, EthosU
from crtgen.compiler.byoc.example import ExampleJson, to_example_json
from crtgen.compiler.byoc.external import External, constants_of
from crtgen.compiler.byoc.find import GROUP, find_generator, generator_names, read_generator
from crtgen.compiler.byoc.generator import Generated, Generator, Pattern
from crtgen.compiler.byoc.partition import partition

__all__ = [
    "ARM_DRIVER",
    "CMSIS_NN",
    "DRIVERS",
    "ETHOS_U",
    "GROUP",
    "THE_BOARDS",
    "CCompiler",
    "CmsisNn",
    "EthosU",
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
