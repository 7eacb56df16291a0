"""The demonstration model, and the script that trains it."""
