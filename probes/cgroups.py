"""Where this process's cgroups lie: every level from its own up to the mount, for one controller.

A limit anywhere above binds, so callers read each level. Version 1 keeps one tree a controller, version 2 one for
all; both may be mounted at once (hybrid). See the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from posixpath import normpath

from probes.hardware import Outcome
from probes.reading import Root, Unreadable

_ESCAPE = re.compile(r"\\(040|011|012|134|043)", re.ASCII)
MAX_LEVELS = 64  # deeper nesting than any container runtime makes
USUAL_PLACE = "/sys/fs/cgroup"  # where systemd and container runtimes mount them


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    kind: str  # cgroup, cgroup2 or cpuset
    options: tuple[str, ...]
    root: str = "/"  # which cgroup the mount shows at its top


@dataclass(frozen=True, slots=True)
class Levels:
    """Folders of one controller, from the process's own upwards."""

    version: int
    folders: tuple[str, ...]
    prefix: bool = True  # False: the ancient cpuset filesystem, whose files lack the controller's name


class Cgroups:
    def __init__(self, root: Root) -> None:
        self._root = root

    def find(self, controller: str) -> Levels | None:
        """Levels of a controller; None when it is not mounted (then it limits nothing)."""
        return self._find_v1(controller) or self._find_v2(controller)

    def _find_v1(self, controller: str) -> Levels | None:
        mounts = [mount for mount in self._mounts if _has_controller(mount, controller)]
        if not mounts:
            return None
        path = self._path_of(controller)
        mount = choose_mount(mounts, path)
        return Levels(1, self._walk(mount, path), mount.kind == "cgroup" and "noprefix" not in mount.options)

    def _find_v2(self, controller: str) -> Levels | None:
        mounts = [mount for mount in self._mounts if mount.kind == "cgroup2"]
        if not mounts:
            return None
        path = self._path_of("", controller)
        return Levels(2, self._walk(choose_mount(mounts, path), path))

    def _path_of(self, hierarchy: str, controller: str = "") -> str:
        """Where this process is in a hierarchy. A captured machine that does not tell is taken to be at the top.

        Raises Unreadable when /proc/self/cgroup is there and does not say: limits could be missed.
        """
        if path := self._paths.get(hierarchy):
            return path
        told = self._root.read("/proc/self/cpuset") if "cpuset" in (hierarchy, controller) else None
        if told and told.startswith("/"):
            return told.strip()
        if self._memberships is not None:
            raise Unreadable(
                Outcome.FAILED, f"/proc/self/cgroup does not tell this process's {hierarchy or 'v2'} cgroup"
            )
        return "/"

    def _walk(self, mount: Mount, path: str) -> tuple[str, ...]:
        """The process's folder and all above, up to the mount. A container sees its own cgroup as the mount's top."""
        inside = path.removeprefix(mount.root) if mount.root != "/" and _is_below(path, mount.root) else path
        inside = normpath("/" + inside.lstrip("/"))
        if ".." in path.split("/") or not self._root.exists(mount.point + inside):
            inside = "/"
        folders: list[str] = []
        while len(folders) < MAX_LEVELS:
            folders.append((mount.point + inside).rstrip("/"))
            if inside == "/":
                break
            inside = inside.rsplit("/", 1)[0] or "/"
        return tuple(folders)

    @cached_property
    def _mounts(self) -> tuple[Mount, ...]:
        mountinfo = parse_mountinfo(self._root.read("/proc/self/mountinfo", 1 << 20) or "")
        mounts = mountinfo or parse_mounts(
            self._root.read("/proc/self/mounts", 1 << 20) or self._root.read("/proc/mounts", 1 << 20) or ""
        )
        return mounts or self._guess_mounts()

    def _guess_mounts(self) -> tuple[Mount, ...]:
        """Where systemd, and before it distributions, mount them; for captures without /proc/mounts."""
        for place in (USUAL_PLACE, "/cgroup"):
            only_v2 = set(self._paths) == {""} and self._root.exists(place)
            if only_v2 or self._root.exists(f"{place}/cgroup.controllers"):
                return (Mount(place, "cgroup2", ()),)
            names = self._root.list(place)
            mounts = tuple(Mount(f"{place}/{name}", "cgroup", tuple(name.split(","))) for name in names)
            if mounts:
                return mounts
        return ()

    @cached_property
    def _memberships(self) -> str | None:
        return self._root.read_if_there("/proc/self/cgroup")

    @cached_property
    def _paths(self) -> dict[str, str]:
        return parse_memberships(self._memberships or "")


def choose_mount(mounts: list[Mount], path: str) -> Mount:
    """Of at least one mount of a hierarchy the one to read this process's cgroup at `path` below.

    A container that was given the host's folders (`-v /:/host`) has the host's mount beside its own. The top of that
    lies above the container's cgroup namespace, which the kernel writes as `/../..` (cgroup_namespaces(7)): nothing
    tells where below it this process is. Of several that do show it the usual place is believed, then the last, which
    covers an earlier one at the same place.
    """
    ranks = [
        (".." not in mount.root.split("/"), _is_below(path, mount.root), _is_below(mount.point, USUAL_PLACE), number)
        for number, mount in enumerate(mounts)
    ]
    return mounts[max(ranks)[-1]]


def _has_controller(mount: Mount, controller: str) -> bool:
    """Whether it is the controller's tree of version 1: a cgroup mount, or the ancient filesystem of cpusets."""
    return mount.kind == controller == "cpuset" or (mount.kind == "cgroup" and controller in mount.options)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def parse_memberships(text: str) -> dict[str, str]:
    """/proc/self/cgroup: `4:memory,cpu:/a/b` as controller -> path; version 2's under the empty name."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths.setdefault(controller, parts[2])
    return paths


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The cgroup mounts of /proc/mounts: `cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0`."""
    mounts = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[2] in ("cgroup", "cgroup2", "cpuset"):
            mounts.append(Mount(unescape(words[1]), words[2], tuple(words[3].split(","))))
    return tuple(mounts)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The cgroup mounts of /proc/self/mountinfo (proc(5)), which also says what each mount's top is."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if dash and len(before) >= 6 and len(after) >= 3 and after[0] in ("cgroup", "cgroup2", "cpuset"):
            options = tuple(after[2].split(",")) + tuple(before[5].split(","))
            mounts.append(Mount(unescape(before[4]), after[0], options, unescape(before[3])))
    return tuple(mounts)


def unescape(text: str) -> str:
    """The kernel writes space, tab, newline, backslash and # in a mount point as octal numbers (\\040 and so on)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
