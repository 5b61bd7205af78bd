"""Time travel over a log: the state at a point, decisions explained and taken again. Pure; entries are fed in."""
