"""Room that others give or keep: victims of preemption, reservations, and jobs that needn't be tried.

`candidates` says who may give room and in which order, `victims` which of them are needed, and `preemption` puts both
together. `reservations` says for whom room is kept, `reservation_search` where, and `backfill` who may use it until
then. Imports `search` and the wings below it.
"""
