"""The constants that a profile holds, one kind a module. Each gives benches; `calibrate` runs them against each other.

A new constant is a function named after it that gives its benches for a plan and an effort, one test, and one line in
CONSTANTS (probes.microtrain.calibrate).
"""
