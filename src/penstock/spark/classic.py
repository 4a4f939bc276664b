"""What Spark keeps to itself: read from the JVM on classic PySpark, from the request on Spark Connect.

The only module that reaches past the public API. Each function says what is assumed where it cannot.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

LOGGER = logging.getLogger(__name__)

CATCH_UP_REQUESTS = frozenset({"available_now", "once"})
CATCH_UP_TRIGGERS = frozenset({"AvailableNowTrigger", "OneTimeTrigger"})


def catches_up(writer: DataStreamWriter) -> bool:
    """Whether the query of a writer ends once it has read what waits; False where that cannot be found out."""
    request: Any = getattr(writer, "_write_proto", None)
    if request is not None:
        return request.WhichOneof("trigger") in CATCH_UP_REQUESTS
    try:
        held: Any = writer._jwrite
        field = held.getClass().getDeclaredField("trigger")
        field.setAccessible(True)
        return field.get(held).toString() in CATCH_UP_TRIGGERS
    except Exception:
        LOGGER.warning("the trigger of the query cannot be told from here; it is taken to run on", exc_info=True)
        return False
