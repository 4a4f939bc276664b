"""The search through all plans of a small network, which the road map is held against."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from penstock.model.network import Network
from penstock.policy.network.place_graph import place_graph
from penstock.policy.network.places import candidate_arcs
from penstock.policy.network.roadmap import RoadMap


def all_plans(network: Network, *, levels: int) -> Iterator[tuple[float, float]]:
    """(load saved, utility) of every plan with keep rates in equal steps at the candidate places."""
    places = candidate_arcs(network)
    graph = place_graph(network, semantic=False)
    losses = {name: graph.graphs[node] for node, name in graph.outputs.items()}
    whole = network.load()
    for keeps in itertools.product(np.linspace(0.0, 1.0, levels).tolist(), repeat=len(places)):
        arc_keep = dict(zip(places, keeps, strict=True))
        delivered = network.delivered(arc_keep)
        utility = sum(loss.utility(delivered[name]) for name, loss in losses.items())
        yield whole - network.load(arc_keep), utility


def largest_gap(network: Network, road_map: RoadMap, *, levels: int) -> float:
    """Most utility that any plan keeps beyond the road map at the same savings; between rows its frontier is a line."""
    graph = place_graph(network, semantic=False)
    whole = sum(loss.full for loss in graph.graphs.values())
    gap = 0.0
    for saved, utility in all_plans(network, levels=levels):
        index = road_map.look_up(min(saved, float(road_map.savings[-1])))
        lost = 0.0
        if index:
            low, high = road_map.savings[index - 1], road_map.savings[index]
            part = (min(saved, high) - low) / (high - low)
            lost = float(road_map.utility_lost[index - 1] * (1 - part) + road_map.utility_lost[index] * part)
        gap = max(gap, utility - (whole - lost))
    return gap
