"""Drops in a network of operators: the Load Shedding Road Map and its plans."""
