"""Readers of data sets: one file a kind of source, and a row in `table.py`."""
