"""Arranger's wording: sentences made from the typed facts in the log, for status, Events, explain and all other pages.

Only people read these sentences: no module compares, splits or stores them.
"""
