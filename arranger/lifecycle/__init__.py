"""Pure functions for one TYJob's life cycle: the next decision, and the desired pods and status."""
