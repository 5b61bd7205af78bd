"""One scheduling cycle: a pure function from a projection, a configuration and a time to a plan.

Other packages import only this module and, for experiments on traces, `experiment`. import-linter checks that, and that
each wing imports only those below it. From the ground up: `cluster` is what nodes have and who is on them, `filters`
say which of them take a pod, `policies` which is best, `queues` whose turn it is and what limits it, `placing` puts
pods on nodes, `search` finds nodes for a whole quorum, `room` is what others give or keep. `cycle` takes them together.
"""

from arranger.scheduling.cluster.fragmentation import GPU_MILLI, Mix, NodeStates, Request, covering, fragments
from arranger.scheduling.cluster.neighbours import Neighbour, neighbour_of
from arranger.scheduling.cluster.relations import attracts, keeps_away
from arranger.scheduling.cluster.view import Chosen, ClusterView, Taken
from arranger.scheduling.cycle import Cycles, facts_of, reserves_for, take_cycle, turn_of, turns_to
from arranger.scheduling.filters.nodes import Filter, Filters
from arranger.scheduling.placing.placement_try import CycleObserver, PlacementTry, Shortage
from arranger.scheduling.placing.quotas import quorum_lacks
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy
from arranger.scheduling.policies.closed_form import Scores
from arranger.scheduling.policies.consent import GroupCheck, Hold, Permit, QuorumAsked
from arranger.scheduling.queues.dominant_shares import Shares
from arranger.scheduling.queues.order import WHOLE
from arranger.scheduling.queues.policies import Priority, QueuePolicy, seniority
from arranger.scheduling.queues.registry import BUILT_IN, Policies, Policy, policies_with
from arranger.scheduling.queues.standing import QueueStanding
from arranger.scheduling.queues.view import (
    HolderKind,
    HolderView,
    QueuesView,
    QueueView,
    holders,
    positions,
    queues_view,
)
from arranger.scheduling.queues.waiting import (
    considered,
    in_line,
    in_order,
    in_order_among,
    order_in_steps,
    policy_of,
    recorded_order,
    waiting_jobs,
)
from arranger.scheduling.room.no_room import Bars, NoRoom, NoRoomKind, bars, why_no_room
from arranger.scheduling.room.too_large import TooLarge
from arranger.scheduling.search.quorum_alone import QuorumAlone, heeds_others, place_alone, try_empty_cluster

__all__ = [
    "BUILT_IN",
    "GPU_MILLI",
    "ONE",
    "WHOLE",
    "Bars",
    "Chosen",
    "ClusterView",
    "CycleObserver",
    "Cycles",
    "Filter",
    "Filters",
    "GroupCheck",
    "Hold",
    "HolderKind",
    "HolderView",
    "Mix",
    "Neighbour",
    "NoRoom",
    "NoRoomKind",
    "NodeStates",
    "Permit",
    "PlacementRequest",
    "PlacementTry",
    "PodPolicy",
    "Policies",
    "Policy",
    "Priority",
    "QueuePolicy",
    "QueueStanding",
    "QueueView",
    "QueuesView",
    "QuorumAlone",
    "QuorumAsked",
    "Request",
    "Scores",
    "Shares",
    "Shortage",
    "Taken",
    "TooLarge",
    "attracts",
    "bars",
    "considered",
    "covering",
    "facts_of",
    "fragments",
    "heeds_others",
    "holders",
    "in_line",
    "in_order",
    "in_order_among",
    "keeps_away",
    "neighbour_of",
    "order_in_steps",
    "place_alone",
    "policies_with",
    "policy_of",
    "positions",
    "queues_view",
    "quorum_lacks",
    "recorded_order",
    "reserves_for",
    "seniority",
    "take_cycle",
    "try_empty_cluster",
    "turn_of",
    "turns_to",
    "waiting_jobs",
    "why_no_room",
]
