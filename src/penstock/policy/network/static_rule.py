"""The paper's own order of drops: the ratio of every place and QoS piece, sorted once ([Aurora03] 4.3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.policy.network.place_graph import JOIN, MIX, OUTPUT, PLACE, Floats


def static_order(arrays: Mapping[str, Any]) -> Floats:
    """List (place, share to go down to, ratio) by the loss/gain ratio of each piece while there are no other drops.

    The QoS of a shared place is the sum of the QoS of the outputs below it.
    """
    kind, work = arrays["kind"], arrays["work"]
    ratios = []
    for place in np.flatnonzero(kind == PLACE):
        reach = _reach(arrays, int(place))
        gain = float(reach @ work)
        if gain <= 0:
            continue
        corners = {0.0}
        for output in np.flatnonzero(kind == OUTPUT):
            if reach[output] > 0:
                for piece in range(arrays["piece_from"][output], arrays["piece_from"][output + 1]):
                    corners.add(max(0.0, 1 - (1 - arrays["piece_low"][piece]) / reach[output]))
        high = 1.0
        for low in sorted(corners, reverse=True):
            if low < high:
                ratios.append((_loss(arrays, reach, (low + high) / 2) / gain, -gain, int(place), low))
                high = low
    return np.array([(place, low, ratio) for ratio, _, place, low in sorted(ratios)], dtype=np.float64).reshape(-1, 3)


def _reach(arrays: Mapping[str, Any], place: int) -> Floats:
    """Share that each node loses per share dropped at the place, without other drops."""
    reach = np.zeros(len(arrays["kind"]))
    reach[place] = 1.0
    for node in range(place + 1, len(reach)):
        first, last = arrays["parent_from"][node], arrays["parent_from"][node + 1]
        above = arrays["parent_of"][first:last]
        if arrays["kind"][node] == MIX:
            reach[node] = float(arrays["weight"][first:last] @ reach[above])
        elif arrays["kind"][node] == JOIN or last > first:
            reach[node] = float(reach[above].sum())
    return reach


def _loss(arrays: Mapping[str, Any], reach: Floats, share: float) -> float:
    """Slope of the summed QoS at this share of the place."""
    total = 0.0
    for output in np.flatnonzero(arrays["kind"] == OUTPUT):
        delivered = 1 - reach[output] * (1 - share)
        for piece in range(arrays["piece_from"][output], arrays["piece_from"][output + 1]):
            if delivered > arrays["piece_low"][piece]:
                total += reach[output] * arrays["piece_slope"][piece]
                break
    return total
