// One job: its life, its pods, why it waits or why its pods are where they are, and when it would start.
import { useEffect } from "preact/hooks";
import { Facts, Happened, InQueue, States } from "./explained";
import { AsOf, Missing, Names, Note, Point, Table } from "./parts";
import { see } from "./seen";
import { chosen, moment, openJob, settledAt } from "./store";
import { Stage } from "./jobs";
import type { Explained, Forecast, Life } from "./types";
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
  const offset = settledAt.value;
  const life = useAnswer<Life>(offset ? "job" : "", { job, at: offset });
  useEffect(() => see([job]), [job]);
  const value = life.value;
  if (!value) return <Missing {...life} none="Nothing is known of this job at this point." />;
  return (
    <>
      <h2>
        {shown(value.job)} {value.stage !== null && <Stage job={{ stage: value.stage }} />}
      </h2>
      <AsOf at={value.at} time={value.time} />
      {value.submitted !== null && (
        <p class="faint">
          Queue {shown(value.queue)}, priority {value.priority}, submitted {stamp(value.submitted)}, attempt{" "}
          {value.attempt}
        </p>
      )}
      <div class="columns">
        <div>
          {value.stage === null ? (
            <Note>The job was deleted before this point. An earlier point, such as that of an event, shows it.</Note>
          ) : (
            <>
              <Why job={value.job} at={offset} />
              <h3>Pods</h3>
              <Pods life={value} />
            </>
          )}
        </div>
        <div>
          <h3>Its life</h3>
          <Story life={value} />
        </div>
      </div>
    </>
  );
}

/** The events without those in which the job was seen as it was before. */
function news(life: Life["life"]): Life["life"] {
  let seen = "";
  return life.filter((one) => {
    if (one.kind !== "JobSeen") return true;
    const before = seen;
    seen = one.words;
    return one.words !== before;
  });
}

function Story({ life }: { life: Life }) {
  if (!life.life.length) return <Note>Nothing happened to this job up to this point.</Note>;
  return (
    <ol class="story" tabIndex={0} aria-label="Events of the job">
      {news(life.life).map((one, place) => (
        <li key={place}>
          <span class="when">
            {clock(one.time)} <Point at={one.at} />
          </span>
          <span>
            <span class="kind">{plain(one.kind)}</span> {shown(one.words)}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Pods({ life }: { life: Life }) {
  return (
    <Table
      caption="Pods"
      rows={life.pods}
      rowsInSight={12}
      none="The job has no pods at this point."
      columns={[
        { name: "Pod", cell: (pod) => shown(pod.name), key: (pod) => pod.name },
        { name: "Role", cell: (pod) => pod.role, key: (pod) => pod.role, wide: true },
        { name: "Node", cell: (pod) => (pod.node ? shown(pod.node) : "none"), key: (pod) => pod.node },
        { name: "Phase", cell: (pod) => pod.phase || "–", key: (pod) => pod.phase },
        { name: "Exit code", cell: (pod) => pod.exitCode ?? "–", key: (pod) => pod.exitCode ?? -1, number: true },
        { name: "Since", cell: (pod) => clock(pod.since), key: (pod) => pod.since, number: true, wide: true },
        { name: "Event", cell: (pod) => (pod.at ? <Point at={pod.at} /> : "–"), number: true, wide: true },
      ]}
    />
  );
}

function Why({ job, at }: { job: string; at: number }) {
  const answer = useAnswer<Explained>("explain", { job, at });
  const value = answer.value;
  if (!value) return <Missing {...answer} none="" />;
  const known = moment.value?.jobs.find((one) => one.job === job);
  // There are forecasts of starts alone, not of the further pods of a job that runs.
  const toStart = value.waiting && known && known.podsPlaced < (known.podsMinimum ?? 0);
  return (
    <section aria-label="Explanation">
      <AsOf at={answer.of.at} time={value.timeMs / 1000} />
      <h3>{!value.waiting ? "Where it stands" : toStart ? "Why it waits" : "Why further pods wait"}</h3>
      <p class="lead">
        {shown(value.waiting?.why || value.standing.message || value.standing.stage)}{" "}
        {!value.waiting && value.standing.messageAt > 0 && <Point at={value.standing.messageAt} />}
      </p>
      <Facts value={value} now={value.timeMs} />
      {value.waiting && <Waiting waiting={value.waiting} />}
      {toStart && <Expected job={job} at={at} />}
      {value.placementExplanations.length > 0 && <Placements placed={value.placementExplanations} />}
      <Happened value={value} />
      <States value={value} />
    </section>
  );
}

/** What stands in a job's way, what would help, and who has what it lacks. */
export function Waiting({ waiting }: { waiting: NonNullable<Explained["waiting"]> }) {
  const closest = waiting.shortfall?.closest;
  const holding = waiting.takers.filter((one) => one.holds);
  return (
    <>
      <p>
        {waiting.position > 0 &&
          `It is number ${waiting.position} of ${many(waiting.queueLength, "waiting job")}, by ${waiting.queuePolicy}. `}
        {closest && `The closest node for its next pod is ${shown(closest.node)}: ${shown(closest.text)}.`}
      </p>
      <InQueue waiting={waiting} />
      {waiting.blockers.length > 0 && (
        <>
          <h4>What stands in its way</h4>
          <ul class="sentences">
            {waiting.blockers.map((one) => (
              <li key={one.offset}>
                {shown(one.text)} <Point at={one.offset} />
              </li>
            ))}
          </ul>
        </>
      )}
      {waiting.remedies.length > 0 && (
        <>
          <h4>What would give it nodes</h4>
          <ul class="sentences">
            {waiting.remedies.map((one) => (
              <li key={one.text}>
                {shown(one.text)}
                {one.pods > 0 && `: ${many(one.pods, "pod")}`} {one.undoes > 0 && <Point at={one.undoes} />}
              </li>
            ))}
          </ul>
        </>
      )}
      {waiting.passedBy.length > 0 && (
        <>
          <h4>Later jobs that got nodes since it waits</h4>
          <ul class="sentences">
            {waiting.passedBy.slice(0, 20).map((one) => (
              <li key={one.offset}>
                {shown(one.job)} got {amounts(one.amounts) || "nodes"} at {clock(one.timeMs / 1000)}, because of{" "}
                {shown(one.why)} <Point at={one.offset} />
              </li>
            ))}
          </ul>
        </>
      )}
      {holding.length > 0 && (
        <>
          <h4>Who has what it lacks</h4>
          <ul class="sentences">
            {holding.slice(0, 20).map((one) => (
              <li key={one.offset}>
                {shown(one.job)} {one.leaving ? "has pods that leave, with" : "holds"}{" "}
                {amounts(Object.entries(one.held)) || "nothing more"} since {clock(one.timeMs / 1000)}
                {!one.sinceCreated && ", before this job was created"} <Point at={one.offset} />
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

// Why a start is unknown.
const UNKNOWN: Record<string, string> = {
  Endless: "Jobs that may run for ever hold room.",
  Never: "It has no room even when all other jobs have ended, or something other than room keeps it waiting.",
  Later: "It comes after the time up to which was looked.",
};

function Expected({ job, at }: { job: string; at: number }) {
  const answer = useAnswer<Forecast>("forecast", { job, at });
  const value = answer.value;
  if (!value) return <Missing {...answer} none="" />;
  const found = value.jobs[0];
  const now = moment.value?.time ?? 0;
  const endless = value.endless.map(shown);
  return (
    <>
      <h4>Forecast</h4>
      <p>
        {found && found.expectedMs > 0
          ? `It is expected to start at ${stamp(found.expectedMs / 1000)}, in ` +
            `${duration(found.expectedMs / 1000 - now)}, if no further jobs, nodes or failures come: ` +
            `at the earliest at ${clock(found.earliestMs / 1000)}, at the latest ` +
            `${found.latestMs > 0 ? `at ${clock(found.latestMs / 1000)}` : "at an unknown time"}.`
          : "No start can be forecast."}
        {found?.why && ` ${UNKNOWN[found.why] ?? found.why}`}
        {endless.length > 0 && ` How long these run is unknown: ${endless.slice(0, 5).join(", ")}.`}
      </p>
    </>
  );
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
