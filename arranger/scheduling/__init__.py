"""One scheduling cycle: a pure function from a projection, a configuration and a time to a plan.

Other packages import only this module and, for experiments on traces, `experiment`. import-linter checks that.
"""

from arranger.scheduling.cycle import Cycles, facts_of, take_cycle, turn_of, turns_to
from arranger.scheduling.filters import Filter, Filters
from arranger.scheduling.fragmentation import GPU_MILLI, Mix, NodeStates, Request, covering, fragments
from arranger.scheduling.neighbours import Neighbour, neighbour_of
from arranger.scheduling.no_room import Bars, NoRoom, NoRoomKind, bars, why_no_room
from arranger.scheduling.placement import Scores
from arranger.scheduling.placement_try import CycleObserver, PlacementTry, Shortage
from arranger.scheduling.policies.base import ONE, PlacementRequest, PodPolicy
from arranger.scheduling.policies.consent import GroupCheck, Hold, Permit, QuorumAsked
from arranger.scheduling.policies.queues import Priority, QueuePolicy, seniority
from arranger.scheduling.queue import (
    considered,
    in_line,
    in_order,
    in_order_among,
    order_in_steps,
    policy_of,
    recorded_order,
    waiting_jobs,
)
from arranger.scheduling.queue_order import WHOLE
from arranger.scheduling.queue_standing import QueueStanding
from arranger.scheduling.queue_view import (
    HolderKind,
    HolderView,
    QueuesView,
    QueueView,
    holders,
    positions,
    queues_view,
)
from arranger.scheduling.quorum_alone import QuorumAlone, heeds_others, place_alone, try_empty_cluster
from arranger.scheduling.quotas import quorum_lacks
from arranger.scheduling.registry import BUILT_IN, Policies, Policy, policies_with
from arranger.scheduling.relations import attracts, keeps_away
from arranger.scheduling.shares import Shares
from arranger.scheduling.too_large import TooLarge
from arranger.scheduling.view import Chosen, ClusterView, Taken

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
    "seniority",
    "take_cycle",
    "try_empty_cluster",
    "turn_of",
    "turns_to",
    "waiting_jobs",
    "why_no_room",
]
