"""Networks: model files, operators and their arithmetic, graph rewrites, signal features. Independent of
cores and memories.
"""
