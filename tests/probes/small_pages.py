"""Programs that count the pages which they find fresh of the system ask for small ones first.

Where large pages are given unasked (/sys/kernel/mm/transparent_hugepage/enabled is `always`, as on Red Hat's systems
and in many a cloud) one fault brings 2 MiB, and none of the counts would say how much memory was new. On Linux a
process may refuse them, for itself and for all that it starts (prctl(2), PR_SET_THP_DISABLE).
"""

SMALL_PAGES = """
import ctypes, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
"""
