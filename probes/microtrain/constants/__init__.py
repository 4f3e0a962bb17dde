"""The constants that a profile holds, one kind a module. Each gives benches; `calibrate` runs them against each other.

A new constant is one module with a function `benches(plan, effort)`, one test, and one line in CONSTANTS
(probes.microtrain.calibrate).
"""
