"""What fails in the control of a query: said once, tried again, and forgotten when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.model.errors import LeaseLostError

LOGGER = logging.getLogger(__name__)

# A part that failed is tried again after so long, not with every look for news.
AGAIN_SECONDS = 1.0


class Troubles:
    """The parts of the control that fail at the moment, each with its words for the status."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._again_at: dict[str, float] = {}

    def __contains__(self, part: str) -> bool:
        return part in self._words

    @property
    def words(self) -> list[str]:
        """What is wrong, one sentence for each part."""
        return list(self._words.values())

    def attempt(self, part: str, words: str, act: Callable[[], object], *, now: bool = False) -> bool:
        """Do what a part is for; True if that went well.

        Any failure becomes a word of the status, and is logged when it is new: none may end the control. Only a lost
        lease may. A part that has just failed waits a moment, unless it is the last chance: ``now``.
        """
        if not now and time.monotonic() < self._again_at.get(part, 0.0):
            return False
        try:
            act()
        except LeaseLostError:
            raise
        except Exception as trouble:
            self._again_at[part] = time.monotonic() + AGAIN_SECONDS
            self.say(part, f"{words} ({trouble!r})", trouble)
            return False
        self.over(part)
        return True

    def say(self, part: str, sentence: str, trouble: Exception) -> None:
        """Note what is wrong with a part."""
        if self._words.get(part) != sentence:
            self._words = {**self._words, part: sentence}
            LOGGER.error("%s", sentence, exc_info=trouble)

    def over(self, part: str) -> None:
        """Note that a part works."""
        self._again_at.pop(part, None)
        if part in self._words:
            self._words = {known: words for known, words in self._words.items() if known != part}
            LOGGER.info("%s: works again", part)
