"""The traces of a profile's networks: each row has the place of its own among them, or the trace itself."""

from __future__ import annotations

import json
from typing import Any

from probes import bounds
from probes.checked import Refused, check_list, check_place
from probes.trace import Trace
from probes.trace_check import check_trace


class TracesOfRows:
    """Equal ones that stand in rows are one object, for what is one is written once; they count with the listed."""

    def __init__(self, listed: Any) -> None:
        """listed: the document's `traces`. Raises Refused."""
        rows = check_list(listed, "traces", bounds.MAX_PROFILE_TRACES)
        self._listed = [check_trace(each, f"traces[{place}]") for place, each in enumerate(rows)]
        self._in_rows: dict[str, Trace] = {}

    def at(self, value: Any, place: str) -> Trace:
        """value: what stands in a row's `trace` member. Raises Refused."""
        if isinstance(value, dict):
            return self._of_row(check_trace(value, place))
        return self._listed[check_place(value, place, len(self._listed), "trace")]

    def _of_row(self, trace: Trace) -> Trace:
        first = self._in_rows.setdefault(json.dumps(trace.to_json(), sort_keys=True), trace)
        if len(self._listed) + len(self._in_rows) > bounds.MAX_PROFILE_TRACES:
            raise Refused(f"traces and networks have more than {bounds.MAX_PROFILE_TRACES} traces together")
        return first
