"""The source of the user's own Python, without running any of it: what tells one version of a model from another.

Followed are the imports that stand in the source, wherever in it, as far as they lead to files below the folder in
which Python finds the model's module, or below another that Python looks in and where nothing is installed (PYTHONPATH,
a package that is installed in place). What is imported by a name made while running, and data that the code reads, is
not seen. Of packages installed elsewhere their version counts.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import sys
from collections.abc import Iterator, Sequence, Set
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

MOST_FILES = 500  # are read for one answer; what a model of more is made of is not told
_INSTALLED = {"site-packages", "dist-packages"}  # how folders of installed packages are called
_LIBRARY = Path(ast.__file__).parent  # Python's own


def hash_source(target: str) -> str | None:
    """32 hexadecimal digits that change with the source of `module:function` and of what it imports, and with the
    version of what it imports from elsewhere; None where it is not found, is no Python source, or imports more than
    MOST_FILES."""
    name = target.partition(":")[0]
    for folder in dict.fromkeys((str(Path.cwd()), *(entry or "." for entry in sys.path))):
        path = _find(name, folder)
        if path is not None:
            return _hash(name, path, [folder, *_beside(folder)]) or _hash(name, path, [folder])
    return None


def _beside(folder: str) -> list[str]:
    """Folders that Python looks in as well, and where sources lie that somebody may edit; none where the model's own
    folder is one of installed packages."""
    if _is_installed(Path(folder)):
        return []
    others = dict.fromkeys(entry for entry in sys.path if entry and entry != folder)
    return [entry for entry in others if not _is_installed(Path(entry)) and Path(entry).is_dir()]


def _hash(name: str, path: Path, folders: Sequence[str]) -> str | None:
    """folders: that in which the model's module was found, and others."""
    digest = hashlib.sha256()
    whole = not _is_installed(Path(folders[0]))  # among installed packages the model's own alone
    waiting, seen, elsewhere = [(name, path)], {name}, set[str]()
    while waiting:
        if len(seen) > MOST_FILES:
            return None
        module, path = waiting.pop(0)
        source = _read(path)
        digest.update(f"{module}\0{len(source)}\0".encode() + source)
        for imported in _imports(module, path, source):
            if imported in seen:
                continue
            is_followed = whole or imported.partition(".")[0] == name.partition(".")[0]
            found = _find_among(imported, folders) if is_followed else None
            if found is not None:
                seen.add(imported)
                waiting.append((imported, found))
            elif "." not in imported:
                elsewhere.add(imported)
    digest.update("\n".join(_versions(elsewhere)).encode())
    return digest.hexdigest()[:32]


def _versions(packages: Set[str]) -> Iterator[str]:
    """Of what these were installed as. Whoever keeps an answer tells of torch's beside it."""
    asked = packages - sys.stdlib_module_names - {"torch"}
    installed = packages_distributions() if asked else {}
    for name in sorted({name for package in asked for name in installed.get(package, ()) if name}):
        with contextlib.suppress(PackageNotFoundError):  # what an upgrade that broke off left behind
            yield f"{name} {version(name)}"


def _is_installed(folder: Path) -> bool:
    """By its own name: a folder above a user's may have any."""
    return folder.name in _INSTALLED or folder == _LIBRARY


def _find_among(module: str, folders: Sequence[str]) -> Path | None:
    """In the first that has it; Python's own are looked for in none but the model's."""
    is_pythons = module.partition(".")[0] in sys.stdlib_module_names
    chosen = folders[:1] if is_pythons else folders
    return next((found for folder in chosen if (found := _find(module, folder)) is not None), None)


def _find(module: str, folder: str) -> Path | None:
    """The source file of a module or package below a folder, which is not imported."""
    places: list[str] | None = [folder]
    found = None
    for part in module.split("."):
        try:
            spec = PathFinder.find_spec(part, places) if places else None
        except (OSError, ValueError):
            return None
        if spec is None:
            return None
        found, places = spec.origin, list(spec.submodule_search_locations or ())
    return Path(found) if found is not None and found.endswith(".py") else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _imports(module: str, path: Path, source: bytes) -> Iterator[str]:
    """Names of modules, and of what may be one: `from package import part`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    yield from _packages(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from (alias.name, *_packages(alias.name))
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            above = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*above, *((node.module,) if node.module else ())])
            if base:
                yield from (base, *_packages(base), *(f"{base}.{alias.name}" for alias in node.names))


def _packages(module: str) -> Iterator[str]:
    """Those that it is in, whose `__init__` runs first."""
    while module := module.rpartition(".")[0]:
        yield module
