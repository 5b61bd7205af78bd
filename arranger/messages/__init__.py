"""The words of Arranger: sentences made of the typed facts in the log, for status, Events, explain and all other pages.

Nothing reads these sentences but people: no module compares, splits or stores them.
"""
