"""The lab: starts micro-training processes, one measurement at a time on a machine, and ends them whatever happens."""

from app.errors import LabBusy, LabError
from app.lab.lab import Lab
from app.lab.slot import Ticket

__all__ = ["Lab", "LabBusy", "LabError", "Ticket"]
