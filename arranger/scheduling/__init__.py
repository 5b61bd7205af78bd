"""One scheduling cycle: an immutable projection, a configuration and a time told in, a plan out. Pure."""
