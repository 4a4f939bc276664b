"""Small files with atomic creation, wherever a checkpoint lies."""
