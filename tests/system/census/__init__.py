"""Networks as today's exporters write them, with the outputs of an oracle that knows nothing of crtgen.

``files/`` has the networks, and beside each a ``.npz`` with ``case0_input0``, ``case0_output0`` and so on.
They are renewed by hand, each by its own script in an environment that has the exporter:

    python -m tests.system.census.keras tests/system/census/files     # tensorflow-cpu, keras
    python -m tests.system.census.torch tests/system/census/files     # torch, onnxscript
    python -m tests.system.census.trees tests/system/census/files     # see there
    python -m tests.system.census.runtime tests/system/census/files   # onnxruntime 1.32

``python -m tests.system.census.page`` writes docs/census.md.
"""
