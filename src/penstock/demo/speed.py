"""What plain Spark does on this machine, as its latest batches show it."""

from __future__ import annotations

# In a batch with less work than that, what a batch costs beside its rows hides what the rows cost.
TELLING_SECONDS = 1.0
# So much of the latest past counts: one batch that was held up is not taken for the machine.
REMEMBERED_SECONDS = 3.0
STEADY_BATCHES, STEADY_RATIO = 4, 1.15


class Speed:
    """Follow how many rows a second Spark takes in when it has all it can take.

    A small batch shows only that the machine is at least so fast.

    >>> speed = Speed()
    >>> for rows, seconds in ((8_000, 2.0), (400, 1.0), (6_000, 3.0)):
    ...     speed.observe(rows, seconds)
    ...     print(speed.rows_per_second)
    4000.0
    4000.0
    2000.0
    """

    def __init__(self) -> None:
        self._batches: list[tuple[int, float]] = []

    def observe(self, rows: int, seconds: float) -> None:
        """Take in a batch."""
        believed = self.rows_per_second if self._batches else 0.0
        if rows >= TELLING_SECONDS * believed or rows / seconds > believed:
            self._batches.append((rows, seconds))

    @property
    def rows_per_second(self) -> float:
        """Rate of the latest telling batches."""
        rows, seconds = 0, 0.0
        for batch_rows, batch_seconds in reversed(self._batches):
            rows, seconds = rows + batch_rows, seconds + batch_seconds
            if seconds >= REMEMBERED_SECONDS:
                break
        return rows / seconds

    @property
    def steady(self) -> bool:
        """Whether the latest batches were large, and all about as fast."""
        latest = self._batches[-STEADY_BATCHES:]
        rates = [rows / seconds for rows, seconds in latest]
        large = all(seconds >= TELLING_SECONDS for _, seconds in latest)
        return len(rates) == STEADY_BATCHES and large and max(rates) <= STEADY_RATIO * min(rates)
