"""One TYJob's life: which decision comes next, and which pods and status should exist. Pure."""
