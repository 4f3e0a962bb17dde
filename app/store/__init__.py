"""The store: what is worth keeping between two starts, in one SQLite file. Nothing else writes it."""

from app.store.store import Store

__all__ = ["Store"]
