"""The shares of whole trees of queues, by what the product divides one resource at a time."""

from collections.abc import Iterable

from arranger.scheduling.queues.fair_shares import ByResource, Claims, Division, QueueClaims


def queue_shares(queues: Iterable[QueueClaims], total: ByResource) -> dict[str, dict[str, int]]:
    """Name → each resource of `total` → the share of the queue and its descendants, in the resource's base unit.

    `total` is what the nodes offer to jobs. Names must be unique, weights positive and amounts not negative. A
    queue whose ancestors don't lead to the root (an unknown parent, a cycle) has no share and is not in the result.
    """
    claims = Claims(queues)
    demand = [queue.demand for queue in claims.queues]
    shares = {name: [of.get(name, 0) for of in demand] for name in total}
    shares = {name: Division(claims, name).shares(of, total[name]) for name, of in shares.items()}
    return {queue.name: {name: of[at] for name, of in shares.items()} for at, queue in enumerate(claims.queues)}
