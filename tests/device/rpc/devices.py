"""Devices in Python that the tests of the client share."""

import numpy as np

from crtgen.device.rpc.server import ServedModel, Server

__all__ = ["ARGS_MODEL", "device"]

ARGS_MODEL = ServedModel(
    "sum",
    {"left": ((2, 3), "int8"), "right": ((2, 3), "int8")},
    [((2, 3), "int8"), ((), "int32")],
    lambda left, right: (left + right, np.int32(left.sum() + right.sum())),
)


def divide(left: int, right: int) -> float:
    return left / right


def device(memory: int = 1 << 20, max_payload: int = 2048) -> Server:
    return Server(
        {"echo": lambda value: value, "divide": divide}, [ARGS_MODEL], memory=memory, max_payload=max_payload
    )
