"""The writer of `.tflite` files, under the names by which tests know it."""

from crtgen.base.formats.tflite_writer import Operator, Options, Sparsity, packed
from crtgen.base.formats.tflite_writer import TfliteModel as Model
from crtgen.base.formats.tflite_writer import TfliteSubgraph as Subgraph
from crtgen.base.formats.tflite_writer import TfliteTensor as Tensor

__all__ = ["Model", "Operator", "Options", "Sparsity", "Subgraph", "Tensor", "packed"]
