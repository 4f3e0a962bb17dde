"""The advisor: pure arithmetic from what was measured to what to do. No I/O, no torch, no web."""

from app.advisor.decide import recommend
from app.advisor.recommendation import Recommendation
from app.advisor.request import InvalidRequest, Request

__all__ = ["InvalidRequest", "Recommendation", "Request", "recommend"]
