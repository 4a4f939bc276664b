"""Decisions row by row: Load-Aware Shedding, density, and their kernels."""
