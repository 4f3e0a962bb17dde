"""Imported once by the process that forks, where forks build models of Hugging Face's configs."""

from __future__ import annotations

from probes.microtrain.building.huggingface_models import import_transformers

import_transformers()
