"""Parts of every kernel: its description, cost and registration, and the choice among designs."""
