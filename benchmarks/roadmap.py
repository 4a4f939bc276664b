"""The road map by itself: how long it takes to build, to look up, and how far it is from the best plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np
from rich.progress import Progress
from rich.table import Table

from lab.sim.brute_force import largest_gap
from lab.sim.workload import Workload, random_network, shared_network
from penstock.model.network import Network, Operator, Output, Source
from penstock.policy.network.place_graph import place_graph
from penstock.policy.network.places import candidate_arcs
from penstock.policy.network.roadmap import RoadMap

LOOK_UPS = 2_000
SEEDS = range(60)


def speed(progress: Progress) -> Table:
    """Networks of 1,000 queries and 10,000 operators."""
    table = Table(title="Road map of 1,000 queries and 10,000 operators", title_justify="left")
    for heading in ("network", "step", "rows", "built in, s", "look-up, µs", "with all keep rates, µs"):
        table.add_column(heading, justify="right")
    many = Workload(queries=1_000, filters=7_300, unions=2_700)
    networks = {
        "no sharing, 3,700 inputs": random_network(many, seed=1),
        "500 splits, 3,200 inputs": random_network(replace(many, splits=500), seed=1),
        "all behind one operator": shared_network(queries=1_000, filters_per_query=10, seed=1),
    }
    task = progress.add_task("road maps", total=len(networks) * 2)
    RoadMap.build(random_network(Workload(), seed=1))  # compile the kernel, which is then kept on disk
    for name, network in networks.items():
        for step in (0.05, 0.01):
            started = time.perf_counter()
            road_map = RoadMap.build(network, step=step)
            built_seconds = time.perf_counter() - started
            wanted = (np.random.default_rng(0).uniform(0, 1, LOOK_UPS) * road_map.savings[-1]).tolist()
            cursor = 0
            started = time.perf_counter()
            for load in wanted:
                cursor = road_map.look_up(load, cursor=cursor)
            look_up_seconds = (time.perf_counter() - started) / LOOK_UPS
            with_keeps = []
            for load in wanted[:500]:
                started = time.perf_counter()
                road_map.keeps(road_map.look_up(load))
                with_keeps.append(time.perf_counter() - started)
            table.add_row(
                name, f"{step:.0%}", f"{len(road_map):,}", f"{built_seconds:.2f}", f"{look_up_seconds * 1e6:.1f}",
                f"{median(with_keeps) * 1e6:.0f}",
            )  # fmt: skip
            progress.advance(task)
    return table


def gaps(progress: Progress) -> Table:
    """Small networks against the search through all plans, for the paper's rule and for ours."""
    table = Table(title="Most utility that any plan keeps beyond the road map, % of all utility", title_justify="left")
    for heading in ("networks", "count", "paper's rule: mean", "worst", "ours: mean", "worst"):
        table.add_column(heading, justify="right")
    union = Workload(queries=2, filters=6, unions=1)
    tree, shared = Workload(queries=3, filters=9, unions=0, splits=1), replace(union, unions=2, splits=1)
    kinds: dict[str, Callable[[int], Network]] = {
        "no sharing, unions": lambda seed: random_network(union, seed=seed),
        "sharing, no unions": lambda seed: random_network(tree, seed=seed),
        "sharing, unions": lambda seed: random_network(shared, seed=seed),
        "no sharing, joins": lambda seed: _joined(random_network(union, seed=seed)),
        "sharing, joins": lambda seed: _joined(random_network(shared, seed=seed)),
    }
    task = progress.add_task("gaps to brute force", total=len(kinds))
    for name, draw in kinds.items():
        found = []
        for seed in SEEDS:
            network = _random_costs(draw(seed), seed)
            places = len(candidate_arcs(network))
            if places > 6:
                continue
            levels = {1: 21, 2: 21, 3: 11, 4: 7}.get(places, 5)
            whole = sum(loss.full for loss in place_graph(network, semantic=False).graphs.values())
            found.append(
                [
                    100 * largest_gap(network, RoadMap.build(network, rule=rule), levels=levels) / whole
                    for rule in ("static", "marginal")
                ]
            )
        static, marginal = np.array(found).T
        table.add_row(
            name, f"{len(found)}", f"{static.mean():.3f}", f"{static.max():.2f}", f"{marginal.mean():.3f}",
            f"{marginal.max():.2f}",
        )  # fmt: skip
        progress.advance(task)
    return table


def _joined(network: Network) -> Network:
    """The same network with joins in place of unions."""
    return Network(
        tuple(
            replace(node, kind="join") if isinstance(node, Operator) and node.kind == "union" else node
            for node in network.nodes
        )
    )


def _random_costs(network: Network, seed: int) -> Network:
    """Draw costs and rates, and leave values out: selectivities then do not hang on what is dropped."""
    rng = np.random.default_rng(seed)
    graph = place_graph(network, semantic=False)
    losses = {name: graph.graphs[node] for node, name in graph.outputs.items()}
    nodes: list[Source | Operator | Output] = []
    for node in network.nodes:
        if isinstance(node, Operator):
            nodes.append(replace(node, passes=(), seconds_per_tuple=float(10 ** rng.uniform(-1, 1))))
        elif isinstance(node, Source):
            nodes.append(replace(node, values=None, tuples_per_second=float(rng.uniform(1, 5))))
        else:
            nodes.append(replace(node, value=None, loss=losses[node.name]))
    return Network(tuple(nodes))
