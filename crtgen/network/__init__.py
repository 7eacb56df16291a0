"""Networks: model files, operators and their arithmetic, rewrites, signal features. No core, no memory."""
