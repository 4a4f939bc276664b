"""Where rows go that are shed, for a user who wants them kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.model.errors import InvalidInputError, SpillError, require_choice, require_whole
from penstock.spark.spill.folder import SpillFolder
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath, Location, place

# Left in the folder by whoever starts a query: a worker that does not find it sees another folder. Spark passes over
# files whose names begin so.
MARK = "_penstock"


@dataclass(frozen=True, slots=True)
class Spill:
    """Name a folder in which rows are stored as Parquet while they are shed.

    Parameters
    ----------
    path
        Folder that driver and executors see, or an address in HDFS or S3 (see
        :class:`~penstock.spark.store.paths.StorePath`). Several queries may share it.
    rows
        ``"shed"`` stores what is shed; ``"all"`` stores every row, with whether it was shed, so that a backfill needs
        nothing from the source.
    keep_batches
        How many of the latest batches to keep; older ones are removed from time to time. None keeps all.

    Examples
    --------
    >>> Spill("/data/clicks-spill", rows="all", keep_batches=5_000)
    Spill(path='/data/clicks-spill', rows='all', keep_batches=5000)
    >>> Spill("/data/clicks-spill", rows="some")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: rows must be 'shed' or 'all', got 'some'; it is which rows are stored
    """

    path: Location
    rows: Literal["shed", "all"] = field(default="shed", kw_only=True)
    keep_batches: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_choice("rows", self.rows, ("shed", "all"), meaning="which rows are stored")
        if self.keep_batches is not None:
            require_whole("keep_batches", self.keep_batches, meaning="how many batches stay in the spill")
        folder = self.folder
        if isinstance(folder, Path):
            for each in (folder, *folder.parents):
                if each.exists() and not each.is_dir():
                    raise InvalidInputError(
                        f"the spill {folder} cannot be a folder, for {each} is a file; name another"
                    )

    @property
    def folder(self) -> AnyPath:
        """The folder as a path."""
        return place(self.path, role="spill")

    def of_query(self, checkpoint: AnyPath) -> SpillFolder:
        """Find, where a task runs, what the query of a checkpoint spills; refuse a folder that is another one there."""
        spilled = SpillFolder.of(self.folder, checkpoint)
        if spilled is None:
            raise SpillError(
                f"no query has {checkpoint} as its checkpoint, so its rows cannot be told from those of other queries; "
                "give the folder to the writer too, option('checkpointLocation', ...), and mount it where the "
                "executors run"
            )
        if isinstance(self.folder, Path) and not (self.folder / MARK).exists():
            raise SpillError(
                f"the spill {self.folder} is not the folder here that the driver sees under this name; mount it where "
                "the executors run, or name one that all share: spill=..."
            )
        return spilled

    def require_writable(self) -> None:
        """Write to the folder once, before a query starts that depends on it."""
        try:
            folder_at(self.folder).replace(MARK, "rows that were shed by Penstock; see docs/backfill.md\n")
        except OSError as cause:
            raise SpillError(
                f"the spill {self.folder} cannot be written ({cause}), so the query was not started; mend that, or "
                "name another folder: spill=..."
            ) from cause


def to_spill(given: Location | Spill | None) -> Spill | None:
    """Take what a user gives: a folder stands for a spill of what is shed."""
    return given if isinstance(given, Spill) or given is None else Spill(given)
