"""What people read: the statuses of TYJobs, Queues and PodGroups, and Events. Its face is `all_statuses`."""
