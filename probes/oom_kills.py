"""How many processes the kernel has killed for want of memory."""

from probes.reading import Root, parse_fields, parse_int


def read_oom_kills(root: Root) -> int | None:
    """Since the machine started, in every control group of it; None where the kernel does not tell (before Linux 4.13,
    other systems)."""
    return parse_oom_kills(root.read("/proc/vmstat") or "")


def is_killed_for_memory(kills_before: int | None, kills_after: int | None) -> bool | None:
    """Of a process that was killed: whether the kernel killed any for want of memory since it began. Both as
    read_oom_kills tells; None where either is not known."""
    return None if kills_before is None or kills_after is None else kills_after > kills_before


def parse_oom_kills(text: str) -> int | None:
    """text: of /proc/vmstat."""
    return parse_int(parse_fields(text, " ").get("oom_kill"))
