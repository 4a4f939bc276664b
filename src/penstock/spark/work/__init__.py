"""Python operators: what runs in their tasks."""
