"""TFLite_Detection_PostProcess for TFLite Micro."""

from collections.abc import Mapping
from typing import Any

from flatbuffers import flexbuffers

from crtgen.network.ir import Node, Op, Signature
from crtgen.network.ops.detection import DetectionPostProcess
from tests.network.ops.oracle.writer import Write, Writer, Written
from tests.tflite_builder import Operator

__all__ = ["WRITERS", "fields"]


def fields(op: DetectionPostProcess) -> dict[str, Any]:
    """The options of the custom operator."""
    scales = dict(zip(("y_scale", "x_scale", "h_scale", "w_scale"), op.scales, strict=True))
    return {
        "detections_per_class": op.per_class,
        "max_classes_per_detection": op.classes_per_box,
        "max_detections": op.detections,
        "nms_iou_threshold": op.most_overlap,
        "nms_score_threshold": op.least_score,
        "num_classes": op.classes,
        "use_regular_nms": op.regular,
        **scales,
    }


def _post_process(writer: Writer, node: Node, sig: Signature) -> Written:
    assert isinstance(node.op, DetectionPostProcess)
    options = bytes(flexbuffers.Dumps(fields(node.op)))
    operator = Operator("CUSTOM TFLite_Detection_PostProcess", node.inputs, node.outputs, custom=options)
    writer.operators.append(operator)
    return "", None, []


WRITERS: Mapping[type[Op], Write] = {DetectionPostProcess: _post_process}
