"""Time travel over a log: rebuild the state at a point, explain decisions and repeat them. Pure: the caller reads."""
