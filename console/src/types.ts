// The answers of the API that the page reads. Times are seconds since the epoch, except fields that end with Ms.

export interface Mark {
  at: number;
  time: number;
  kind: string;
  /** The node, or the jobs as namespace/name. */
  subjects: string[];
}
export interface Timeline {
  first: number;
  last: number;
  firstTime: number;
  lastTime: number;
  buckets: { at: number; time: number; events: number; decisions?: number }[];
  marks: Mark[];
  /** The server has read all of the log. */
  complete?: boolean;
  /** The offset after which most jobs waited or ran; 0: none did. */
  busiest?: number;
  /** The log is a file or an archive. */
  stored?: boolean;
  /** The offsets of the first decision and the last one; 0: there is none. */
  decided?: [number, number];
}
export interface Job {
  job: string;
  queue: string;
  /** The one that counts in its queue. */
  priority: number | null;
  /** The job's own, if it may be another. */
  ownPriority?: number | null;
  stage: string;
  since: number;
  submitted: number;
  attempt: number;
  podsPlaced: number;
  /** Of those that have nodes; an older record has neither number. */
  podsRunning?: number;
  podsFailed?: number;
  podsReady?: number;
  /** Of one that ended, those that it had in the end: null isn't known. */
  podsWanted: number | null;
  // Left out for jobs of namespaces whose jobs the reader may not see.
  podsMinimum?: number;
  gpus?: number;
  waitCause?: string | null;
  /** What is wrong with its pods, in the words of its status; empty: nothing. */
  trouble?: string;
}
/** Where a job stands: 0 is no position, and null isn't known. */
export interface Standing {
  job: string;
  user: string;
  position: number;
  expected: number | null;
  guess: boolean;
  gpuMs: number | null;
}
export interface Standings {
  at: number;
  waiting: number;
  jobs: Standing[];
}
export interface Node {
  name: string;
  gpus: number;
  gpusFree: number;
  ready: boolean;
  schedulable: boolean;
  topology: string[];
  jobs: [number, number][];
}
export interface Queue {
  name: string;
  parent: string;
  used: number;
  share: number | null;
  cap: number | null;
  demand: number;
  state: string;
  weight: number;
  waiting: number;
  running: number;
  message: string;
}
export interface Moment {
  at: number;
  time: number;
  totals: Record<string, number>;
  jobs: Job[];
  nodes: Node[];
  topologyLevels: string[];
  queues: Queue[];
  /** When room is given back that was kept for a pod, if no event comes before. */
  lapses?: number | null;
}
export interface Series {
  times: number[];
  offsets: number[];
  gpus: number[];
  gpusUsed: number[];
  gpusIdle: number[];
  gpusReserved: number[];
  gpusBesideUsed: number[];
  jobsWaiting: number[];
  jobsRunning: number[];
  /** What each queue uses with the queues below it, and by itself, in the tree of queues of then. */
  queues: Record<string, number[]>;
  queuesOwn: Record<string, number[]>;
  complete?: boolean;
}
export interface Bar {
  from: number;
  to: number;
  kind: string;
  cause: string | null;
  gpus: number;
  attempt: number;
  nodes: string[];
  /** The stage in which the waiting or the run ended; empty: it lasts, the job then ran, or it was deleted. */
  outcome?: string;
  /** The queue of then; empty: the job's last one. */
  queue?: string;
}
export interface Gantt {
  jobs: { job: string; queue: string; bars: Bar[]; user?: string }[];
  left?: number;
  /** From the offset `at` on, the job is gone; another one may have its name. */
  deleted?: { job: string; queue: string; at: number }[];
  deletedLeft?: number;
}
export interface NodeGantt {
  jobs: string[];
  /** Each bar: the index of the job, from, to, GPUs. */
  nodes: { node: string; bars: [number, number, number, number][]; gpus: number }[];
  left: number;
}
export interface Life {
  job: string;
  queue: string;
  /** The one that counts in its queue. */
  priority: number | null;
  /** The job's own, if it may be another. */
  ownPriority?: number | null;
  /** Null: the job is gone. */
  stage: string | null;
  submitted: number | null;
  attempt: number;
  /** `gives`: the event is a decision that takes nodes from this job, for another one. */
  life: { at: number; time: number; kind: string; words: string; gives: boolean }[];
  /** How many older events are left out. */
  left: number;
  pods: {
    name: string;
    role: string;
    node: string;
    phase: string;
    exitCode: number | null;
    since: number;
    at: number;
  }[];
  /** The point that all of this is about, and its time. */
  at: number;
  time: number;
}
export interface Line {
  offset: number;
  timeMs: number;
  kind: string;
  subject: string;
  job: string;
  verdict: string;
  text: string;
}
export interface NoRoom {
  kind: string;
  jobs: string[];
  untilMs: number;
  above: string;
  resources: string[];
  hosts: string[];
}
export interface Explained {
  timeMs: number;
  /** The offset before the first event that was read to explain it. */
  began: number;
  standing: {
    message: string;
    messageAt: number;
    stage: string;
    stageSinceMs: number;
    attempt: number;
    budget: string;
    createdBy: string;
    ended: boolean;
    podsDesired: number | null;
    podsPlaced: number;
    podsSeen: number;
    podsRunning?: number;
    podsFailed?: number;
    podsPresent: number;
    /** Whether it has had nodes in any attempt. */
    hadNodes: boolean;
    /** The pods of an earlier attempt that have to go before this one begins. */
    podsEarlier?: string[];
    /** What can be done about a failure; empty if the job hasn't failed. */
    remedy: string;
    /** Its pods whose containers failed last, the newest first; what is played doesn't have them. */
    failed?: { pod: string; node: string; lastMs: number; text: string; again: string }[];
  };
  /** How long it was in each stage, waiting for one thing each, and whether that counts as waiting to start; the page of a replay doesn't have it. */
  spent?: { stage: string; spanMs: number; waits: boolean }[];
  /** What would have given a job nodes that failed for want of them; the page of a replay doesn't have it. */
  wouldHaveHelped?: { offset: number; remedies: { text: string }[] } | null;
  takings: {
    offset: number;
    timeMs: number;
    victims: { job: string; kind: string; pods: number; lostMs: number }[];
    spared: { job: string }[];
    begunMs: number;
    lostMs: number;
  }[];
  givings: {
    offset: number;
    timeMs: number;
    to: string;
    toQueue: string;
    toPriority: number;
    reclaimed: boolean;
    guest: boolean;
    pods: number;
    lostMs: number;
    whole: boolean;
    againMs: number;
  }[];
  /** When it starts; null: it doesn't wait to start. A time of 0 is unknown. */
  start?: null | {
    certainty: "Promised" | "Forecast" | "Unknown";
    expectedMs: number;
    earliestMs: number;
    latestMs: number;
    why: string | null;
    endless: string[];
    /** What a forecast expects beside a reservation, if it is another time; else 0. */
    forecastMs: number;
    /** Whether the forecast, also one beside a reservation, supposes the end of a job of whose end nothing is known. */
    guessed: boolean;
    /** What the reservation promised at first, if it was moved; else 0. */
    firstMs: number;
    /** Whether the reservation's time follows from earlier runs, and not from what jobs declare. */
    estimated: boolean;
    /** Whether jobs of other queues wait, which may get their turns first. */
    contested: boolean;
    /** Whether a guest of another queue runs in the reserved room, and may stay. */
    guests: boolean;
    /** Jobs of a higher priority that may take what is reserved: they lack further pods, or a limit. */
    ahead: string[];
    /** The pods that still have to leave, once the promised time is over. */
    leaving: string[];
    /** How many of them are its own. */
    own: number;
    /** The job that is expected to fail, and this one with it. */
    failing: string;
    /** When the reservation is revised at the latest, once its time is over; 0 if the next cycle does that. */
    revisedMs: number;
  };
  /** A limit of its queue that is kept for it. */
  keptLimit: null | { text: string; startMs: number; awaits: string[] };
  kept: null | { offset: number; startMs: number; nodes: string[]; awaits: string[]; outlived: string[] };
  consequences: {
    offset: number;
    timeMs: number;
    what: string;
    message: string;
    budget: string;
    causes: { offset: number; text: string }[];
  }[];
  intervals: {
    stage: string;
    waitingFor: string;
    sinceOffset: number;
    sinceMs: number;
    untilMs: number;
    lasts: boolean;
  }[];
  waiting: null | {
    why: string;
    position: number;
    queueLength: number;
    queuePolicy: string;
    ahead: { job: string; decidedBy: string; gets: string }[];
    shortfall: null | { closest: null | { node: string; text: string } };
    takers: {
      offset: number;
      timeMs: number;
      job: string;
      held: Record<string, number>;
      sinceCreated: boolean;
      holds: boolean;
      leaving: boolean;
    }[];
    passedBy: { offset: number; timeMs: number; job: string; why: string; amounts: [string, number][]; times: number }[];
    blockers: { offset: number; text: string }[];
    /** As `blockers`, of before the job was created. */
    earlier: { offset: number; text: string }[];
    /** What helps; with one that is `thenFeasible` and has no pods, the job only waits for room that could come;
     * with one that is `thenReserved`, room is reserved for it. */
    remedies: {
      kind: string;
      text: string;
      pods: number;
      undoes: number;
      several: boolean;
      thenFeasible: boolean;
      thenReserved: boolean;
    }[];
    /** How many changes cycles tried to find the remedies. */
    tried: number;
    /** How many of its pods a cycle would place now. */
    gets: number;
    inQueue: null | {
      queue: string;
      position: number;
      waiting: number;
      running: number;
      maxRunning: number | null;
      amounts: { resource: string; used: number; share: number; capability: number | null }[];
      keptBy: string | null;
      keptAt: string;
      /** It is a limit, and without it the nodes would have too little. */
      noNodes: boolean;
    };
    takesNone: NoRoom[];
  };
  placementExplanations: {
    pod: string;
    node: string;
    offset: number;
    why: string;
    nodes: number;
    passed: number;
    refused: [{ kind: string; name: string }, number][];
    ranking: { node: string; score: number; terms: { name: string; weight: number; value: number }[] }[];
  }[];
}
export interface Verified {
  cycles: number;
  decisions: number;
  identical: number;
  different: number;
  eventsFolded: number;
  sound: boolean;
}
export interface Outcome {
  queuePolicy: string;
  podPolicy: string;
  pods: number;
  given: string;
  quorums: number;
  waiting: number;
  preempted: string[];
  jobs: WhatIfJob[];
}
export interface WhatIfJob {
  job: string;
  /** Its position in the order of turns, from 1; 0: it isn't in the order. */
  queue: number;
  desired: number;
  held: number;
  placed: number;
  nodes: Record<string, string>;
  waits: string;
  roomFrom: string[];
  untried: boolean;
}
export interface Course {
  endMs: number;
  started: number;
  ended: number;
  waitingAtEnd: number;
  /** Those that hold nodes at the end, though the log shows no end of them. */
  endlessJobs: string[];
  /** Some of those that wait at the end. */
  waitingJobs: string[];
  waitMeanMs: number;
  waitP95Ms: number;
  makespanMs: number | null;
  curve: { timeMs: number; gpusUsed: number; gpus: number; waiting: number }[];
}
export interface Waits {
  waitMs: number;
  gpuMs: number;
  rows: { group: string; cause: string; holder: string; waitMs: number; gpuMs: number }[];
}
export interface Preemptions {
  preemptions: {
    offset: number;
    timeMs: number;
    job: string;
    victims: { job: string; kind: string; pods: number }[];
    harmGpuMs: number;
    gainedMs: number | null;
  }[];
}
export interface QueueDetail {
  holders: { name: string; amounts: Record<string, number>; pods: number }[];
  waiting: { position: number; job: string; priority: number | null; message: string }[];
}
export interface WhatIf {
  cycle: number;
  base: number;
  otherwise: string;
  reproduced: boolean | null;
  asItWas: Outcome;
  whatIf: Outcome;
  differences: { job: string; one: WhatIfJob | null; other: WhatIfJob | null; differs: string[] }[];
  supposed: string[];
  changedJob: string;
  /** What jobs get a moment later, once dry runs of jobs ahead of them are made, if that is something else. */
  afterDryRuns: WhatIfJob[];
  until: null | {
    asItWas: Course;
    whatIf: Course;
    starts: {
      job: string;
      attempt: number;
      asItWasMs: number | null;
      whatIfMs: number | null;
      asItWasWaitMs: number | null;
      whatIfWaitMs: number | null;
    }[];
  };
}
