"""A running query: its handle, its progress, its ledger."""
