"""Where windows begin and end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The windows: how long they are and how far apart they start, in microseconds; edges as Spark's own windows."""

    size_micros: int
    slide_micros: int
    pane_micros: int

    def ends_of(self, pane: int) -> list[int]:
        """Ends of the windows that a pane belongs to.

        >>> Span(size_micros=30, slide_micros=10, pane_micros=10).ends_of(20)
        [30, 40, 50]
        """
        start = pane // self.slide_micros * self.slide_micros
        starts = range(start, pane - self.size_micros, -self.slide_micros)
        return sorted(first + self.size_micros for first in starts)

    def panes_of(self, end: int) -> range:
        """Panes of the window that ends here."""
        return range(end - self.size_micros, end, self.pane_micros)
