"""One job's life: what was decided on it and why, what it waits for, and what would give it nodes."""
