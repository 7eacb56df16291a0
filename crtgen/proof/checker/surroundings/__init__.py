"""Premises of a proof: the way from reset to the network's function, and the code around it.

::

    reset        the way from reset to the first call
    interrupts   handlers, which may come at any time
    places       where inputs and outputs are
    calls        what an application calls
    conversions  floats to integers, and back
    description  what a host is told
    served       copies between a host and the tensors
    npu          layers that an NPU computes
    sliding      windows over a signal
"""
