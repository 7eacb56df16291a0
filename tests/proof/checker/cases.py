"""Networks of one operator each: a case of every kind and type that the checker knows."""

from collections.abc import Iterator

from crtgen.network.ops import Case, all_cases

__all__ = ["CASES"]

_NAMES = """
    softmax_fine logistic_fine tanh_fine logistic_int16_0.00024 relu_int16_relu6 leaky_relu_int16_0.3
    relu_relu6 leaky_relu_alpha_-0.25 squared_difference_int80 prelu_int80 add_same_shape add_halves
    add_int16 sub_constant sub_int16 mul_same_shape mul_int16 maximum_int8 minimum_int16 conv2d_1x1_batch2
    conv2d_3x3_int4 conv2d_int16 depthwise_conv2d_3x3_int4 depthwise_conv2d_int16_same_s2
    depthwise_conv2d_5x5_same
    fully_connected_odd_int4 fully_connected_int16 hard_swish_scale_0.05 gather_constant
    average_pool2d_skew_relu average_pool2d_int16 max_pool2d_skew_relu max_pool2d_int16
    quantize_int16_int8_finer quantize_uint8_int8_finer quantize_int8_uint8_coarser mean_image
    mean_int16_channels sum_image resize_bilinear_broken resize_nearest_centres pad_value
    transpose_reversed strided_slice_backward strided_slice_int16_sparse concat_rows3 mirror_pad_reflect
    broadcast_to_int16_middle tanh_int16_0.00024 tanh_int16_0.01000 lstm_int8 lstm_int8_batch lstm_int8_time
    lstm_int16 lstm_int16_batch
    abs_scale_0.05 abs_equal abs_int16 elu_scale_0.05 rsqrt_scale_0.05 rsqrt_scale_0.31
    reduce_max_image reduce_min_channels greater_int8 equal_int8_outer less_equal_int8
    select_int8 select_int8_outer select_int16 arg_max_last arg_min_middle arg_max_vector
    batch_matmul_int8_0 batch_matmul_int8_3 batch_matmul_int8_outer batch_matmul_constant batch_matmul_int16_0
    quantize_f32 quantize_f32_saturated quantize_f32_int16 dequantize_int8 dequantize_int16 dequantize_uint8
    batch_matmul_int16_3 svdf_int8 svdf_int16 svdf_batch
"""


def _cases() -> Iterator[Case]:
    known = {case.name: case for case in all_cases()}
    yield from (known[name] for name in _NAMES.split())


CASES = tuple(_cases())
