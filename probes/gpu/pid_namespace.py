"""Whether this process sees all of the machine's processes, or a container's only."""

from probes.reading import Root

_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of linux/proc_ns.h


def is_first_namespace(root: Root) -> bool | None:
    """Of the PID namespace that this process is in; None where nothing tells, as in a capture."""
    told = root.link_target("/proc/self/ns/pid")
    return None if told is None else told == _FIRST_NAMESPACE
