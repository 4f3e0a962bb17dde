"""Decisions in words: reasons with codes and evidence, advice, the verdict."""
