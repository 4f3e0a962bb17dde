"""A script to paste: the recommended plan as Python source."""
