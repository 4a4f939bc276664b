"""Networks and QoS graphs as SVG, for notebooks and pages; nothing but text, so that no drawing package is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from penstock.model.network import OUTSIDE, Arc, Network, Operator, Output, Source, inputs_of
from penstock.model.network_plan import NetworkPlan

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 120, 40, 70, 22, 20
FILLS = {"source": "#d7e8f7", "output": "#dcefd8", "join": "#f6e3c5", "aggregate": "#f6e3c5"}
INK, FAINT, DROP = "#2b2b2b", "#8a8a8a", "#c0392b"
FONT = 'font-family="sans-serif"'


def network_svg(network: Network, plan: NetworkPlan | None = None, delivered: Mapping[str, float] | None = None) -> str:
    """Draw a network from left to right, with the drops of a plan in red and what each output gets.

    >>> from penstock.model.network import Source
    >>> network = Network((Source(name="in", tuples_per_second=1), Output(name="out", input="in")))
    >>> network_svg(network).startswith("<svg")
    True
    """
    at = _positions(network)
    plan = plan or NetworkPlan(reason="nothing is shed")
    width = max(x for x, _ in at.values()) + BOX_WIDTH + MARGIN
    height = max(y for _, y in at.values()) + BOX_HEIGHT + MARGIN + 18
    parts = [_arc_svg(arc, at, plan) for arc in network.arcs]
    for node in network.order:
        parts.append(_box_svg(node, *at[node.name], delivered or {}))
    return _svg(width, height, parts)


def _positions(network: Network) -> dict[str, tuple[float, float]]:
    """One column for each step from the sources; within a column as near as it goes to what feeds a node."""
    column: dict[str, int] = {}
    for node in network.order:
        column[node.name] = max((column[name] + 1 for name in inputs_of(node)), default=0)
    last = max(column.values())
    for output in network.outputs:
        column[output.name] = last
    columns: list[list[str]] = [[] for _ in range(last + 1)]
    for node in network.order:
        columns[column[node.name]].append(node.name)
    by_name = {node.name: node for node in network.nodes}
    rank: dict[str, float] = {}
    for names in columns:
        wanted = {
            name: sum(rank[above] for above in inputs_of(by_name[name])) / max(1, len(inputs_of(by_name[name])))
            for name in names
        }
        for number, name in enumerate(sorted(names, key=lambda name: wanted[name])):
            rank[name] = number
    tallest = max(len(names) for names in columns)
    at: dict[str, tuple[float, float]] = {}
    for number, names in enumerate(columns):
        top = MARGIN + (tallest - len(names)) * (BOX_HEIGHT + GAP_Y) / 2
        for name in names:
            x = MARGIN + 40 + number * (BOX_WIDTH + GAP_X)
            at[name] = (x, top + rank[name] * (BOX_HEIGHT + GAP_Y))
    return at


def _arc_svg(arc: Arc, at: Mapping[str, tuple[float, float]], plan: NetworkPlan) -> str:
    x2, y2 = at[arc[1]][0], at[arc[1]][1] + BOX_HEIGHT / 2
    if arc[0] == OUTSIDE:
        x1, y1 = x2 - 34, y2
    else:
        x1, y1 = at[arc[0]][0] + BOX_WIDTH, at[arc[0]][1] + BOX_HEIGHT / 2
    bend = (x1 + x2) / 2
    line = (
        f'<path d="M{x1:.0f},{y1:.0f} C{bend:.0f},{y1:.0f} {bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}" fill="none" '
        f'stroke="{FAINT}" stroke-width="1.3"/>'
    )
    drop = plan.drops.get(arc)
    if drop is None:
        return line
    # Near its end: arcs that leave one split lie on each other at their beginning.
    x, y = x2 - 16, y2
    said = escape(str(drop))
    return (
        f'{line}<g><title>{said}</title><circle cx="{x:.0f}" cy="{y:.0f}" r="6" fill="{DROP}"/>'
        f'<text x="{x:.0f}" y="{y - 9:.0f}" {FONT} font-size="10" fill="{DROP}" text-anchor="middle">'
        f"{drop.keep:.0%}{' by value' if drop.ranges else ''}</text></g>"
    )


def _box_svg(node: Source | Operator | Output, x: float, y: float, delivered: Mapping[str, float]) -> str:
    if isinstance(node, Source):
        kind, small = "source", f"{node.tuples_per_second:,.{0 if node.tuples_per_second >= 100 else 2}f} tuples/s"
    elif isinstance(node, Output):
        share = delivered.get(node.name)
        kind, small = "output", "output" if share is None else f"delivered {share:.0%}"
    else:
        kind, small = node.kind, f"{node.kind}, {node.seconds_per_tuple * 1e6:.3g} µs, passes {node.selectivity:.2g}"
    name = node.name if len(node.name) <= 19 else node.name[:18] + "…"
    return (
        f"<g><title>{escape(node.name)}: {escape(small)}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" '
        f'fill="{FILLS.get(kind, "#f4f4f4")}" stroke="{FAINT}"/>'
        f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 17:.0f}" {FONT} font-size="12" fill="{INK}" '
        f'text-anchor="middle">{escape(name)}</text>'
        f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 31:.0f}" {FONT} font-size="8" fill="{FAINT}" '
        f'text-anchor="middle">{escape(small)}</text></g>'
    )


def quality_svg(
    title: str, points: Sequence[tuple[float, float]], *, x_label: str, cursor: tuple[float, float] | None = None
) -> str:
    """Draw a QoS graph, with the cursor where the output stands now.

    >>> quality_svg("loss tolerance", ((0, 0), (1, 1)), x_label="delivered share", cursor=(0.8, 0.8)).count("<circle")
    1
    """
    width, height, left, bottom, top = 260, 170, 40, 36, 24
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(xs), max(*xs, min(xs) + 1e-9)
    most = max(*ys, 1e-9)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - low) / (high - low) * (width - left - 12),
            height - bottom - y / most * (height - bottom - top),
        )

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    base = height - bottom
    parts = [
        f'<text x="{left}" y="14" {FONT} font-size="12" fill="{INK}">{escape(title)}</text>',
        f'<line x1="{left}" y1="{base}" x2="{width - 12}" y2="{base}" stroke="{FAINT}"/>',
        f'<line x1="{left}" y1="{top}" x2="{left}" y2="{base}" stroke="{FAINT}"/>',
        f'<polyline points="{line}" fill="none" stroke="#2471a3" stroke-width="2"/>',
        f'<text x="{left}" y="{base + 14}" {FONT} font-size="10" fill="{FAINT}">{low:g}</text>',
        f'<text x="{width - 12}" y="{base + 14}" {FONT} font-size="10" fill="{FAINT}" '
        f'text-anchor="end">{high:g}</text>',
        f'<text x="{left - 4}" y="{top + 8}" {FONT} font-size="10" fill="{FAINT}" text-anchor="end">{most:g}</text>',
        f'<text x="{left - 4}" y="{base}" {FONT} font-size="10" fill="{FAINT}" text-anchor="end">0</text>',
        f'<text x="{(left + width) / 2:.0f}" y="{height - 6}" {FONT} font-size="10" fill="{INK}" '
        f'text-anchor="middle">{escape(x_label)}</text>',
    ]
    if cursor is not None:
        x, y = place(*cursor)
        parts.append(
            f'<line x1="{x:.1f}" y1="{base}" x2="{x:.1f}" y2="{y:.1f}" stroke="{DROP}" stroke-dasharray="3,2"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{DROP}"/>'
        )
    return _svg(width, height, parts)


def status_html(network: Network, plan: NetworkPlan | None, outputs: Iterable[Any]) -> str:
    """Draw a running network: its drops, the QoS graph of each output with its cursor, and why."""
    statuses = {output.name: output for output in outputs}
    parts = [network_svg(network, plan, {name: status.delivered for name, status in statuses.items()})]
    graphs = []
    for output in network.outputs:
        status = statuses.get(output.name)
        cursor = None if status is None else (status.delivered, output.loss.utility(status.delivered))
        graphs.append(quality_svg(output.name, output.loss.points, x_label="delivered share", cursor=cursor))
    parts.append(f'<div style="display:flex;flex-wrap:wrap">{"".join(graphs)}</div>')
    if plan is not None:
        parts.append(f"<p>{escape(plan.reason)}</p>")
    return "<div>" + "".join(parts) + "</div>"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">{"".join(parts)}</svg>'
    )
