// What the explanation of a job says beside the reason why it waits: its room, its queue, what happened to it, and how
// long it was in each state. The command `arranger explain` says the same.
import { type ComponentChildren, Fragment } from "preact";
import { Brief, Point, Sentences } from "./parts";
import type { Explained, NoRoom } from "./types";
import { clock, duration, many, person, podsNow, quantity, shown, stamp } from "./words";

type Fact = [name: string, text: ComponentChildren];

const few = (names: readonly string[]): string =>
  names.slice(0, 3).map(shown).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
const work = (ms: number): string =>
  `${ms < 3_600_000 ? `${ms / 1000} GPU seconds` : `${Number((ms / 3_600_000).toPrecision(4))} GPU hours`} of work lost`;

export const VICTIMS: Record<string, string> = {
  Surplus: "workers above its quorum",
  Priority: "lower priority",
  Reclaim: "its queue was above its share",
  Guest: "a guest",
  GuestSurplus: "surplus of a guest",
};

/** What is so at this point, as rows of a list of pairs: restarts, pods, room that was taken, given and reserved. */
export function Facts({ value, now }: { value: Omit<Explained, "intervals" | "placementExplanations">; now: number }) {
  const { standing } = value;
  const facts: Fact[] = [
    ["Pods", pods(standing)],
  ];
  if (standing.remedy) facts.push(["What helps", shown(standing.remedy)]);
  const helped = value.wouldHaveHelped;
  if (helped && helped.remedies.length > 0) {
    facts.push(["Would have helped", <>{few(helped.remedies.map((one) => one.text))} <Point at={helped.offset} /></>]);
  }
  if (standing.budget) {
    const again = standing.attempt ? `scheduled again ${many(standing.attempt, "time")}; ` : "";
    facts.push(["Restarts", `${again}counted against the limits: ${shown(standing.budget)}`]);
  }
  for (const one of standing.failed ?? []) {
    const again = one.again ? `; ${shown(one.again)}` : "";
    facts.push([`Failed ${clock(one.lastMs / 1000)}`, `${shown(one.pod)} on ${shown(one.node)} ${shown(one.text)}${again}`]);
  }
  if (standing.createdBy) facts.push(["Created by", person(standing.createdBy)]);
  // The earlier ones stand in the history.
  const last = (name: string, of: readonly unknown[]): string => (of.length > 1 ? `${name}, last of ${of.length}` : name);
  facts.push(...value.takings.slice(-1).map((one): Fact => [last("Took room", value.takings), taken(one, now)]));
  facts.push(...value.givings.slice(-1).map((one): Fact => [last("Gave room", value.givings), given(one, now)]));
  if (value.kept) facts.push(["Reserved for it", kept(value.kept, now)]);
  if (value.keptLimit) facts.push(["Kept for it", keptLimit(value.keptLimit, now)]);
  return (
    <>
      {facts.map(([name, text], place) => (
        <Fragment key={place}>
          <dt>{name}</dt>
          <dd>
            <Brief>{text}</Brief>
          </dd>
        </Fragment>
      ))}
    </>
  );
}

/** What is true of this attempt's pods, and of those of an earlier one that have to go first. */
function present(standing: Explained["standing"]): string {
  const { podsPlaced, podsDesired, podsSeen, podsEarlier = [] } = standing;
  const nodes = `${podsPlaced} of ${podsDesired} have nodes`;
  const now = podsNow(standing);
  const exist = podsPlaced ? `, and ${podsSeen || "none"} of them exist${now && `: ${now}`}` : "";
  if (!podsEarlier.length) return nodes + exist;
  return `${nodes}${exist}; of its earlier attempt, ${podsEarlier.length} ${podsEarlier.length === 1 ? "is" : "are"} still there: ${few(podsEarlier)}`;
}

function pods(standing: Explained["standing"]): string {
  if (!standing.ended) return present(standing);
  if (standing.podsPresent) return `${many(standing.podsPresent, "pod")} still there`;
  if (standing.podsDesired !== 0) return "all gone: the job has ended";
  return standing.hadNodes ? "it had no nodes when it ended" : "it never had nodes";
}

function taken(one: Explained["takings"][number], now: number): ComponentChildren {
  const from = one.victims.map(
    (job) => `${shown(job.job)} (${many(job.pods, "pod")}, ${VICTIMS[job.kind] ?? job.kind}, ${work(job.lostMs)})`,
  );
  const spared = one.spared.map((job) => shown(job.job));
  return (
    <>
      from {from.join(", ")} at {clock(one.timeMs / 1000)} <Point at={one.offset} />
      {spared.length > 0 && `; it might have taken room from ${few(spared)} as well`}
      {one.begunMs > 0
        ? `; it began ${duration((one.begunMs - one.timeMs) / 1000)} later`
        : one.lostMs > 0
          ? `; it gave the nodes back after ${duration((one.lostMs - one.timeMs) / 1000)} without having begun`
          : `; it waits since ${duration((now - one.timeMs) / 1000)} for their pods to leave`}
    </>
  );
}

function given(one: Explained["givings"][number], now: number): ComponentChildren {
  const why = one.guest
    ? "whose guest it was"
    : one.reclaimed
    ? `whose queue ${shown(one.toQueue)} was below its share`
    : `which has priority ${one.toPriority}`;
  return (
    <>
      {many(one.pods, "pod")} to {shown(one.to)}, {why}, at {clock(one.timeMs / 1000)} <Point at={one.offset} />;{" "}
      {work(one.lostMs)}, no restart counted;{" "}
      {!one.whole
        ? "it ran on with the rest"
        : one.againMs > 0
          ? `it had nodes again ${duration((one.againMs - one.timeMs) / 1000)} later`
          : `it waits again since ${duration((now - one.timeMs) / 1000)}`}
    </>
  );
}

function kept(one: NonNullable<Explained["kept"]>, now: number): ComponentChildren {
  const expected = one.startMs > now ? "expected" : "where it was expected";
  const start = one.startMs > 0 ? `${expected} to start at ${stamp(one.startMs / 1000)}` : "start unknown";
  return (
    <>
      {few(one.nodes)}, {start}
      {one.awaits.length > 0 && `, after the end of ${few(one.awaits)}`}
      {one.outlived.length > 0 && `; longer than expected ran ${few(one.outlived)}`} <Point at={one.offset} />
    </>
  );
}

function keptLimit(one: NonNullable<Explained["keptLimit"]>, now: number): ComponentChildren {
  const expected = one.startMs > now ? "is expected" : "was expected";
  const start = one.startMs > 0 ? `enough ${expected} to be left at ${stamp(one.startMs / 1000)}` : "when enough is left isn't known";
  return (
    <>
      {shown(one.text)}; {start}
      {one.awaits.length > 0 && `, after the end of ${few(one.awaits)}`}
    </>
  );
}

const KEPT_BY: Record<string, string> = {
  Room: "room: no nodes have enough for it",
  Reserved: "room that is reserved for a job before it",
  Overtaken: "room: a job that was behind it got what it needs",
  Leaving: "room: pods that leave still hold what it needs",
  Selection: "its own selection of nodes: none of them is one that it selects",
  ClosedNodes: "closed nodes: they are cordoned, not ready, or have a taint that it doesn't tolerate",
  Rules: "rules about nodes and pods: no node is left that it may use",
  Infeasible: "the nodes: even without pods, they couldn't hold it",
  Order: "the order: it would fit, but jobs before it get the room",
  Usage: "the order: its queue used more before, so jobs of others get the room",
  Quota: "a ResourceQuota of its namespace",
  Capability: "the capability of queue {queue}",
  Guarantees: "what is guaranteed to other queues",
  MaxRunning: "maxRunning of queue {queue}",
  MaxWaiting: "maxWaiting of queue {queue}",
  NonPreemptible: "what queue {queue} deserves, which is all that jobs may use there that can't be preempted",
  Plugin: "a plugin of another package, which the reason names",
  NoQueue: "its queue, which doesn't exist",
  Problem: "a problem of queue {queue}",
  NotAdmitted: "the namespaces of queue {queue}, which don't include the job's",
  Closed: "queue {queue}, which is closed",
};

const TAKES_NONE: Record<string, string> = {
  Off: "the setting preemption is Never",
  QueueNever: "its queue takes no room back: spec.preemption or the setting is Never",
  Quota: "nobody is preempted for the quota or limit that it lacks",
  Infeasible: "not even an empty cluster would have room",
  Reserved: "the room that it would have is reserved for a job before it",
  Comes: "it has room once the pods have left that leave anyway, or are about to finish",
  OverLimit: "its queue has more than a limit allows, and jobs that have nodes keep them",
  Refused: "the API server refuses a pod of it in a dry run, which is repeated now and then",
  InVain: "it took room in vain, and takes no more until its spec, a quota or one of those nodes changes, or a pod leaves one of these where others didn't in time",
  HasNodes: "it has nodes for its quorum",
  NotLower: "{jobs}: not of lower priority in its queue",
  PriorityNever: "{jobs}: spec.preemption.priority of its queue, or priority in the setting preemption, is Never",
  ReclaimNever: "{jobs}: spec.preemption.reclaim of its queue, or reclaim in the setting preemption, is Never",
  SurplusNever:
    "{jobs}: spec.preemption.surplus of its queue, or surplus in the setting preemption, is Never, and without surplus these queues aren't above their shares",
  NotPreemptible: "{jobs}: not preemptible",
  TooYoung: "{jobs}: ran for less than the minRuntimeSeconds of the queue",
  JustTook: "{jobs}: ran for less than min_runtime_s on nodes that it took",
  AboveShare: "{jobs}: nothing is reclaimed, because {above} would be above its share of {of}",
  OwnAboveShare: "{jobs}: nothing is reclaimed, because the own jobs of its queue would be above their part of its share",
  WithinShare: "{jobs}: in queues that aren't above their share",
  OwnWithinShare: "{jobs}: own jobs of a queue, which aren't above their part of its share",
  NotReclaimable: "{jobs}: in queues that aren't reclaimable",
  Unusable: "{jobs}: in queues that don't exist or have a problem, until that is mended",
  Awaited: "the {reservations} for the end of {jobs}",
  Returning: "{jobs}: {hosts} may take their room once pods of an earlier attempt have left",
  TooLittle: "what others may give isn't enough: {jobs}",
  Nobody: "no other job has what it lacks where its pods may run",
};

/** Where a waiting job stands in its queue, and why it takes no room from others. */
export function InQueue({ waiting }: { waiting: NonNullable<Explained["waiting"]> }) {
  const there = waiting.inQueue;
  return (
    <>
      {there && (
        <>
          <h4>Its queue</h4>
          <p>
            <Brief>
              {there.position > 0 && `Number ${there.position} of ${there.waiting} in `}
              {shown(there.queue)}: {there.amounts.map(ofQueue).join("; ")}; {many(there.running, "job")}
              {there.maxRunning !== null && ` of at most ${there.maxRunning}`} with nodes.
              {there.keptBy !== null &&
                ` What keeps it waiting is ${keptBy(there.keptBy, there)}.`}
            </Brief>
          </p>
        </>
      )}
      <Sentences title="Why it takes no room from others">{waiting.takesNone.map(noRoom)}</Sentences>
    </>
  );
}

function keptBy(cause: string, { keptAt, noNodes }: Standing): string {
  const nodes = noNodes ? ", and room: without that, nodes would have too little" : "";
  return (KEPT_BY[cause] ?? cause).replace("{queue}", shown(keptAt)) + nodes;
}

function noRoom(one: NoRoom): string {
  const until = one.untilMs > 0 ? `, until ${clock(one.untilMs / 1000)} at the earliest` : "";
  const above = one.above ? `queue ${one.above}` : "its own queue";
  const wait = one.hosts.length === 1 ? `reservation of ${few(one.hosts)} waits` : `reservations of ${few(one.hosts)} wait`;
  return (TAKES_NONE[one.kind] ?? one.kind).replace("{reservations}", wait).replace("{hosts}", few(one.hosts)).replace("{jobs}", few(one.jobs)).replace("{above}", above).replace("{of}", one.resources.join(" and ")) + until;
}

type Standing = NonNullable<NonNullable<Explained["waiting"]>["inQueue"]>;
type QueueAmount = Standing["amounts"][number];

function ofQueue({ resource, used, share, capability }: QueueAmount): string {
  const cap = capability === null ? "" : `, capability ${quantity(resource, capability)}`;
  return `${resource} ${quantity(resource, used)} used, share ${quantity(resource, share)}${cap}`;
}

type Decided = Explained["consequences"][number];

/** The decisions that ended or interrupted the job, each with its causes. */
export function Happened({ value }: { value: Pick<Explained, "consequences"> }) {
  if (!value.consequences.length) return null;
  return (
    <>
      <h3>What happened to it, and why</h3>
      <ul class="sentences">
        {value.consequences.map((one, place) => (
          <li key={one.offset}>
            {clock(one.timeMs / 1000)} <Consequence of={one} before={value.consequences[place - 1]} />
          </li>
        ))}
      </ul>
      {value.consequences.some((one) => one.causes.length > 0) && <NobodyKnown />}
    </>
  );
}

/** `before`: the decision that is shown before it, whose causes aren't repeated. */
export function Consequence({ of, before }: { of: Decided; before?: Decided }) {
  const told = before?.causes.map((cause) => `${cause.offset} ${cause.text}`);
  return (
    <>
      <Brief>
        <strong>{of.what}</strong>: {shown(of.message)}
        {of.budget && ` (restarts: ${shown(of.budget)})`} <Point at={of.offset} />
      </Brief>
      {of.causes.filter((cause) => !told?.includes(`${cause.offset} ${cause.text}`)).map((cause, place) => (
        <span class="terms" key={place}>
          because {shown(cause.text)} {cause.offset > 0 && <Point at={cause.offset} />}
        </span>
      ))}
    </>
  );
}

export function NobodyKnown() {
  return (
    <p class="faint">
      Kubernetes doesn't say who deleted a pod or cordoned a node. The API server's audit log may know.
    </p>
  );
}
