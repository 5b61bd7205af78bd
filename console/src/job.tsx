// One job: its life, its pods, why it waits or why its pods are where they are, and when it would start.
import { Fragment } from "preact";
import { useEffect } from "preact/hooks";
import { Facts, InQueue } from "./explained";
import { History } from "./history";
import { AsOf, Brief, JobLink, Missing, Names, Note, Point, Sentences, Table } from "./parts";
import { see } from "./seen";
import { chosen, goToTime, moment, openJob, settledPoint, timeline, until } from "./store";
import { Stage } from "./jobs";
import type { Explained, Gantt, Life } from "./types";
import { useAnswer } from "./use";
import { amounts, clock, count, duration, many, plain, shown, stamp } from "./words";

export function JobView() {
  const job = chosen.value;
  const jobs = moment.value?.jobs ?? [];
  return (
    <>
      <div class="controls">
        <label>
          Job{" "}
          <input
            list="jobs"
            value={shown(job)}
            placeholder="namespace/name"
            onChange={(event) => openJob(event.currentTarget.value.trim())}
          />
        </label>
        <Names id="jobs" names={jobs.map((one) => one.job)} />
      </div>
      {job ? <About job={job} /> : <Note>Choose a job here, or in the table of jobs.</Note>}
    </>
  );
}

function About({ job }: { job: string }) {
  const at = settledPoint.value;
  const life = useAnswer<Life>(at ? "job" : "", { job, at });
  useEffect(() => see([job]), [job]);
  const value = life.value;
  if (!value) {
    return (
      <>
        <Missing {...life} problem={life.problem.replace(MEANT, "")} none="Nothing is known of this job at this point." />
        {life.problem && <Elsewhere job={job} problem={life.problem} />}
      </>
    );
  }
  return (
    <div class="column">
      <h2>
        {shown(value.job)} {value.stage !== null && <Stage job={{ stage: value.stage }} />}
      </h2>
      <AsOf at={value.at} time={value.time} />
      {value.stage === null ? (
        <>
          <Note>The job was deleted before this point. An earlier point, such as that of an event, shows it.</Note>
          <History life={value} />
        </>
      ) : (
        <Why life={value} at={at} />
      )}
    </div>
  );
}

/** The names in a refusal that are like the one that was asked about. */
const MEANT = / \(did you mean (.*)\?\)$/;

/** Of a name that no job has at the point: when a job of that name comes, or which names are like it. */
function Elsewhere({ job, problem }: { job: string; problem: string }) {
  const log = timeline.value;
  const answer = useAnswer<Gantt>(log ? "gantt" : "", { from: log?.first, to: log?.last });
  const jobs = answer.value?.jobs ?? [];
  const begins = jobs.find((one) => one.job === job || one.job.endsWith(`/${job}`))?.bars[0]?.from;
  if (begins !== undefined) {
    return (
      <p>
        It comes at{" "}
        <button type="button" onClick={() => void goToTime(begins)}>
          {stamp(begins)}
        </button>
      </p>
    );
  }
  const near = MEANT.exec(problem)?.[1]?.split(" or ") ?? [];
  if (!near.length) return null;
  return (
    <p>
      Did you mean{" "}
      {near.map((one, place) => (
        <Fragment key={one}>
          {place > 0 && " or "}
          <JobLink job={one} />
        </Fragment>
      ))}
      ?
    </p>
  );
}

function Pods({ life }: { life: Life }) {
  return (
    <Table
      caption="Pods"
      rows={life.pods}
      rowsInSight={12}
      columns={[
        { name: "Pod", cell: (pod) => shown(pod.name), key: (pod) => pod.name },
        { name: "Role", cell: (pod) => pod.role, key: (pod) => pod.role },
        { name: "Node", cell: (pod) => (pod.node ? shown(pod.node) : "none"), key: (pod) => pod.node },
        { name: "Phase", cell: (pod) => pod.phase || "–", key: (pod) => pod.phase },
        { name: "Exit code", cell: (pod) => pod.exitCode ?? "–", key: (pod) => pod.exitCode ?? -1, number: true },
        { name: "Since", cell: (pod) => clock(pod.since), key: (pod) => pod.since, number: true },
        { name: "Event", cell: (pod) => (pod.at ? <Point at={pod.at} /> : "–"), number: true },
      ]}
    />
  );
}

/** What matters of a job, in one column: its state, why it waits and what would help, when, where, and what came before. */
function Why({ life, at }: { life: Life; at: string }) {
  const answer = useAnswer<Explained>("explain", { job: life.job, at });
  const value = answer.value;
  const known = moment.value?.jobs.find((one) => one.job === life.job);
  // There are forecasts of starts alone, not of the further pods of a job that runs.
  const toStart = !!value?.waiting && !!known && known.podsPlaced < (known.podsMinimum ?? 0);
  return (
    <section aria-label="Explanation">
      {value ? (
        <>
          <AsOf at={answer.of.at} time={value.timeMs / 1000} />
          <State value={value} />
          {value.waiting && (
            <>
              <h3>{toStart ? "Why it waits" : "Why further pods wait"}</h3>
              <Waiting waiting={value.waiting} value={value} />
            </>
          )}
        </>
      ) : (
        <Missing {...answer} none="" />
      )}
      <h3>When and where</h3>
      <dl class="pairs">
        {value?.start && <Expected start={value.start} now={until(value.timeMs / 1000)} />}
        {life.submitted !== null && (
          <>
            <dt>Submitted</dt>
            <dd>
              {stamp(life.submitted)}, {duration(until(life.time) - life.submitted)} ago; in queue {shown(life.queue)} with priority{" "}
              {life.priority ?? "unknown"}
              {(life.ownPriority ?? life.priority) !== life.priority && `, because of maxPriority of its queue: the job has ${life.ownPriority}`}
            </dd>
          </>
        )}
        {value && <Facts value={value} now={until(value.timeMs / 1000) * 1000} />}
      </dl>
      <Pods life={life} />
      {value && value.placementExplanations.length > 0 && <Placements placed={value.placementExplanations} />}
      <History life={life} explained={value ?? undefined} />
    </section>
  );
}

/** How long it is in its stage; an end doesn't last. */
function lasted({ stage, ended, stageSinceMs }: Explained["standing"], now: number): string {
  const spent = duration(now - stageSinceMs / 1000);
  return ended ? `${stage} ${spent} ago` : `${stage} for ${spent}`;
}

/** For how long it waited and ran, over all attempts, as the first sentence of `arranger explain` says it. */
function times({ standing, spent = [] }: Explained): string {
  if (standing.stage !== "Succeeded" && standing.stage !== "Running") return "";
  const all = (counts: (one: (typeof spent)[number]) => boolean): number =>
    spent.reduce((sum, one) => sum + (counts(one) ? one.spanMs : 0), 0);
  const [waitedMs, ranMs] = [all((one) => one.waits), all((one) => one.stage === "Running")];
  const ran = standing.ended ? `ran ${duration(ranMs / 1000)}` : "";
  const parts = [waitedMs > 0 && `waited ${duration(waitedMs / 1000)}`, ran].filter(Boolean);
  return parts.length ? `; it ${parts.join(" and ")}` : "";
}

/** The state in a sentence. */
function State({ value }: { value: Explained }) {
  const { standing, waiting, timeMs } = value;
  const why = waiting?.why || standing.message;
  return (
    <p class="lead">
      <Brief>
        <strong>
          {lasted(standing, until(timeMs / 1000))}
        </strong>
        {why && `: ${shown(why)}`}
        {times(value)} {!waiting && standing.messageAt > 0 && <Point at={standing.messageAt} />}
      </Brief>
    </p>
  );
}

interface WaitingOf {
  waiting: NonNullable<Explained["waiting"]>;
  /** The explanation that has it. */
  value: Pick<Explained, "began" | "standing">;
}

/** What would help a waiting job, what stands in its way, and who has what it lacks. */
export function Waiting({ waiting, value }: WaitingOf) {
  const closest = waiting.shortfall?.closest;
  const holding = waiting.takers.filter((one) => one.holds);
  const nodes = waiting.gets > 0 || value.standing.podsPlaced > 0 ? "more nodes" : "nodes";
  return (
    <>
      <p>
        {waiting.position > 0 &&
          `It is number ${waiting.position} of ${count(waiting.queueLength)} among the jobs that ask for nodes, by ${waiting.queuePolicy}. `}
        {closest && `The closest node for its next pod is ${shown(closest.node)}: ${shown(closest.text)}.`}
        {!waiting.position && !closest && `${shown(waiting.why)}.`}
      </p>
      <Sentences title="Ahead of it in the queue">
        {waiting.ahead.map((one) => `${shown(one.job)}: ${shown(one.decidedBy)}; ${shown(one.gets)}`)}
      </Sentences>
      {waiting.remedies.length === 0 && waiting.tried > 0 && <p>{inVain(waiting.tried, nodes)}</p>}
      {[true, false].map((gives) => (
        <Sentences key={gives} title={gives ? `What would give it ${nodes}` : "What would put it into the queue"}>
          {waiting.remedies
            .filter((one) => (one.pods > 0 || one.thenFeasible || one.thenReserved) === gives)
            .map((one) => (
              <>
                {shown(one.text)}
                {one.pods > 0 && `: ${many(one.pods, "pod")}`} {one.undoes > 0 && <Point at={one.undoes} />}
                {one.undoes > 0 && one.several && " and others"}
              </>
            ))}
        </Sentences>
      ))}
      <Sentences title="What stands in its way">
        {(waiting.blockers.length ? waiting.blockers : waiting.earlier).map((one) => (
          <>
            {shown(one.text)} <Point at={one.offset} />
          </>
        ))}
      </Sentences>
      {waiting.shortfall && !waiting.blockers.length && !waiting.earlier.length && (
        <p>
          No single event
          {value.began > 0 && ` from #${value.began + 1} on, where the part of the log that was read begins,`} was found
          without which a cycle would give it {nodes} now.
        </p>
      )}
      <InQueue waiting={waiting} />
      <Sentences title="Who has what it lacks">
        {holding.map((one) => (
          <>
            {shown(one.job)} {one.leaving ? "has pods that leave, with" : "holds"}{" "}
            {amounts(Object.entries(one.held)) || "nothing more"} since {clock(one.timeMs / 1000)}
            {!one.sinceCreated && ", before this job was created"} <Point at={one.offset} />
          </>
        ))}
      </Sentences>
      <Sentences title="Other jobs that got nodes since it waits">
        {waiting.passedBy.map((one) => (
          <>
            {shown(one.job)} got {amounts(one.amounts) || "nodes"} at {clock(one.timeMs / 1000)}: {shown(one.why)}
            {one.times > 1 && `; it got nodes ${one.times} times by now`}{" "}
            <Point at={one.offset} />
          </>
        ))}
      </Sentences>
    </>
  );
}

/** That none of the changes helps that were tried, as `arranger explain` says it. */
function inVain(tried: number, nodes: string): string {
  if (tried === 1) return `The one change that a cycle tried at this point doesn't give it ${nodes}.`;
  return `None of the ${count(tried)} changes that a cycle tried at this point gives it ${nodes}.`;
}

// Why a start is unknown.
const UNKNOWN: Record<string, string> = {
  Endless: "nothing is known of the end of {jobs}",
  Awaited: "its reservation waits for the end of {jobs}, and nobody knows when that comes",
  Queue: "it can't use its queue",
  Infeasible: "its quorum would not fit even if nothing else ran",
  Never: "it doesn't fit even when all other jobs have ended",
  Guarantees: "even when all other jobs have ended, the guarantees of other queues leave too little for it",
  Limit: "even when all other jobs have ended, a quota or a limit of its queue leaves too little for it",
  Refused: "the API server refuses a pod of it in a dry run, which is repeated now and then",
  RefusedBefore: "the API server refused pods of it when it last got nodes",
  DependencyOverdue: "job {job} is expected to reach its deadline, and this job fails then",
  DependencyFails: "job {job} is expected to fail, and this job fails then",
  Later: "a forecast takes too long here: arranger forecast",
  NotForecast: "no forecast was made (forecast_every_s)",
  TooLarge: "the cluster has too many pods for a forecast here: arranger forecast",
  TooManyJobs: "more jobs wait than a forecast here looks at: arranger forecast",
  Held: "something other than room keeps it",
};

/** The start that the explanation names, as `arranger explain` does and the table of jobs. */
function Expected({ start, now }: { start: NonNullable<Explained["start"]>; now: number }) {
  return (
    <>
      <dt>{start.certainty === "Unknown" || start.expectedMs / 1000 > now ? "Expected start" : "Overdue start"}</dt>
      <dd>
        <Brief>{expected(start, now)}.</Brief>
      </dd>
    </>
  );
}

// What a guess supposes.
const GUESSED = "such jobs are taken to last as long again as they have run, or as half of the earlier jobs did";

function expected(start: NonNullable<Explained["start"]>, now: number): string {
  const { certainty, expectedMs, why } = start;
  const time = (ms: number): string => clock(ms / 1000);
  const jobs = start.endless.slice(0, 5).map(shown).join(", ");
  let because = why ? (UNKNOWN[why] ?? why).replace("{jobs}", jobs || "jobs that hold room").replace("{job}", shown(start.failing)) : "";
  if (why === "Awaited" && !jobs) because = "the jobs have ended for which its reservation waited, and no cycle has revised it since";
  if (certainty === "Unknown") {
    return `unknown: ${because}${start.forecastMs > 0 ? `; a forecast guesses ${stamp(start.forecastMs / 1000)}: ${GUESSED}` : ""}`;
  }
  const away = expectedMs / 1000 - now;
  const when = `${stamp(expectedMs / 1000)}, ${away > 0 ? `in ${duration(away)}` : `for ${duration(-away)}`}`;
  if (certainty === "Forecast") {
    const from = start.earliestMs / 1000 >= now ? time(start.earliestMs) : "now";
    if (why === "Endless" || start.guessed) {
      const endless = jobs ? `nothing is known of the end of ${jobs}` : "jobs that may never end hold room";
      const range = start.latestMs > 0 ? `between ${from} and ${time(start.latestMs)}` : `not before ${from}`;
      return `${when}: a guess by a forecast, because ${endless}: ${GUESSED}; likely ${range}`;
    }
    const to = start.latestMs > 0 ? time(start.latestMs) : `an unknown time, because ${because}`;
    return `${when}: a forecast, if no further jobs, nodes or failures come; likely between ${from} and ${to}`;
  }
  const said = start.estimated || start.contested || start.guests || start.ahead.length > 0 ? "expected" : "promised";
  const doubts =
    (start.estimated ? " (estimated from earlier runs)" : "") +
    (start.contested ? " (jobs of other queues may get their turns first)" : "") +
    (start.guests ? " (a guest of another queue may stay in the room)" : "") +
    (start.ahead.length > 0 ? ` (pods of ${start.ahead.slice(0, 5).map(shown).join(", ")} go first, also there)` : "");
  const first = start.firstMs > 0 ? `, which ${said} ${time(start.firstMs)} at first` : "";
  const [how, basis] = start.guessed ? ["guesses", `, with jobs of whose end nothing is known: ${GUESSED}`] : ["expects", ""];
  const other = start.forecastMs > 0 ? `; a forecast ${how} ${time(start.forecastMs)}${basis}` : "";
  if (away > 0) return `${when}: ${first ? "expected" : said} by its reservation${first}${doubts}${other}`;
  const waits = jobs ? [`${jobs} to end`] : [];
  if (start.leaving.length > 0) {
    const own = start.own === start.leaving.length ? " of its own" : start.own > 0 ? `, ${start.own} of them its own,` : "";
    waits.push(`${many(start.leaving.length, "pod")}${own} to leave those nodes (${start.leaving.slice(0, 3).map(shown).join(", ")})`);
  }
  const anew = start.revisedMs > 0 ? `a cycle decides anew by ${time(start.revisedMs)} at the latest` : "the next cycle decides anew";
  const still = waits.length > 0 ? `it waits for ${waits.join(" and for ")}` : anew;
  return `${when}, by its reservation${first}: ${still}${other}`;
}

/** How many nodes the pod might have gone to, and why not to the others. */
function fitting(one: Explained["placementExplanations"][number]): string {
  const others = one.refused.map(([reason, nodes]) => `${count(nodes)} ${plain(reason.kind)} ${shown(reason.name)}`.trim());
  const could = `${count(one.passed)} of ${many(one.nodes, "node")} could take it`;
  return others.length ? `${could}; the others: ${others.join(", ")}` : could;
}

function Placements({ placed }: { placed: Explained["placementExplanations"] }) {
  return (
    <details open={placed.length <= 4}>
      <summary>Why its pods got these nodes</summary>
      <ul class="sentences">
        {placed.map((one) => (
          <li key={one.pod}>
            <strong>{shown(one.pod)}</strong> on {shown(one.node)}: {shown(one.why)} <Point at={one.offset} />
            <span class="terms">{fitting(one)}</span>
            {one.ranking.length > 1 && (
              <span class="terms">
                {one.ranking.slice(0, 3).map((rank) => (
                  <span key={rank.node}>
                    {shown(rank.node)} {rank.score.toFixed(2)} (
                    {rank.terms.map((term) => `${term.name} ${(term.value * 100).toFixed(0)}% × ${term.weight}`).join(", ")})
                  </span>
                ))}
              </span>
            )}
          </li>
        ))}
      </ul>
    </details>
  );
}
