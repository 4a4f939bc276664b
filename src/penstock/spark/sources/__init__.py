"""What a source tells before a batch runs, and a source that can pass over rows."""
