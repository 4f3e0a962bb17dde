"""How many processes the kernel has killed for want of memory."""

from probes.reading import Root, parse_fields, parse_int


def read_oom_kills(root: Root) -> int | None:
    """Since the machine started, in every control group of it; None where the kernel does not tell (before Linux 4.13,
    other systems)."""
    return parse_oom_kills(root.read("/proc/vmstat") or "")


def parse_oom_kills(text: str) -> int | None:
    """text: of /proc/vmstat."""
    return parse_int(parse_fields(text, " ").get("oom_kill"))
