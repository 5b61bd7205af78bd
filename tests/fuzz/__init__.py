"""TYJobs with anything in them, given to the controller's own check, to the workers, and to API servers."""
