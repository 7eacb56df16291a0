"""Detections from boxes and scores."""

from collections.abc import Mapping

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, pairs
from crtgen.network.frontends.tflite_file import FileTensor
from crtgen.network.ir import DType
from crtgen.network.ops import Dequantize
from crtgen.network.ops.detection import DetectionPostProcess

__all__ = ["CONVERTERS"]

_PER_CLASS = 100  # where the file does not say


def _post_process(layer: TfliteLayer) -> Converted:
    op = DetectionPostProcess(
        classes=layer.number("num_classes"),
        detections=layer.number("max_detections"),
        classes_per_box=layer.number("max_classes_per_detection"),
        per_class=layer.number("detections_per_class", _PER_CLASS),
        regular=bool(layer.number("use_regular_nms")),
        least_score=layer.real("nms_score_threshold"),
        most_overlap=layer.real("nms_iou_threshold"),
        scales=(
            layer.real("y_scale"),
            layer.real("x_scale"),
            layer.real("h_scale"),
            layer.real("w_scale"),
        ),
    )
    return Converted(op, tuple(_real(t) for t in layer.operands), ("scores", "anchors"))


def _real(tensor: FileTensor) -> FileTensor | Converted:
    # The numbers that a tensor stands for.
    if tensor.dtype in (DType.INT8, DType.UINT8):
        return Converted(Dequantize(), (tensor,))
    if tensor.dtype is not DType.FLOAT32:
        raise RefusedOperator(
            f"boxes, scores or anchors of {tensor.type_name}; supported: FLOAT32, INT8, UINT8"
        )
    return tensor


CONVERTERS: Mapping[str, TfliteConverter] = {
    "CUSTOM TFLite_Detection_PostProcess": TfliteConverter(
        _post_process,
        ("detection_post_process", "detections"),
        types=pairs((DType.FLOAT32, DType.INT8, DType.UINT8), (DType.FLOAT32,)),
    )
}
