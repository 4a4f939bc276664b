"""Mergeable summaries of a stream, and the compiled kernels behind them."""
