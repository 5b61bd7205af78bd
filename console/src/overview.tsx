// What happened up to a point: how much there was, what disturbed nodes and jobs, what jobs waited for, and who gave room to whom.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { VICTIMS } from "./explained";
import { Stage, useDeleted } from "./jobs";
import { AsOf, Figure, JobLink, Missing, Note, Point, Table } from "./parts";
import { see } from "./seen";
import { ended, live, moment, problem, settledPoint, timeline } from "./store";
import type { Job, Mark, Preemptions, Timeline, Waits } from "./types";
import { useAnswer } from "./use";
import { awaited, clock, count, duration, hours, many, person, plain, shown, stamp } from "./words";

const by = signal("queue");
const heldBy = signal("queue");

export function Overview() {
  const [now, log] = [moment.value, timeline.value];
  const marks = now && log ? log.marks.filter((one) => one.at <= now.at) : [];
  useEffect(() => see(marks.filter((one) => !one.kind.startsWith("node")).flatMap((one) => one.subjects)), [log]);
  const gone = useDeleted(true);
  if (!now || !log) return <Missing problem={problem.value} busy={!problem.value} none="" />;
  if (!log.last) return <Note>The log is empty.</Note>;
  return (
    <>
      <p class="lead">
        From {stamp(log.firstTime)} to this point, {duration(now.time - log.firstTime)}:{" "}
        {many(Math.max(0, now.at - log.first + 1), "event")}. {ending(log)}
      </p>
      <dl class="figures">
        <Figure name="Jobs" value={now.jobs.length} />
        <Figure name="Jobs waiting" value={now.totals.jobsWaiting} />
        <Figure name="Jobs running or starting" value={now.totals.jobsRunning} />
        <Figure name="Jobs ended" value={now.totals.jobsEnded} />
        <Figure name="Jobs deleted" value={gone.left ? undefined : gone.rows.length} />
        {now.nodes.length > 0 && (
          <>
            <Figure name="Nodes" value={now.nodes.length} />
            <Figure name="GPUs used" value={now.totals.gpusUsed} of={now.totals.gpus} />
          </>
        )}
      </dl>
      <Troubled jobs={now.jobs.filter((one) => one.trouble)} />
      <h3>What disturbed nodes and jobs</h3>
      <Marks marks={marks} />
      <Waited to={settledPoint.value} />
      <h3>Who gave room to whom</h3>
      <Preempted to={settledPoint.value} />
    </>
  );
}

/** The jobs whose pods are in trouble at the point, those with the most GPUs first. */
function Troubled({ jobs }: { jobs: readonly Job[] }) {
  if (!jobs.length) return null;
  return (
    <>
      <h3>Jobs whose pods are in trouble</h3>
      <Table
        caption="Jobs whose pods are in trouble at this point"
        rows={[...jobs].sort((one, other) => (other.gpus ?? 0) - (one.gpus ?? 0))}
        rowsInSight={8}
        columns={[
          { name: "Job", cell: (one) => <JobLink job={one.job} />, key: (one) => one.job },
          { name: "Stage", cell: (one) => <Stage job={one} />, key: (one) => one.stage },
          { name: "Pods ready", cell: (one) => `${count(one.podsReady ?? 0)} of ${count(one.podsWanted ?? 0)}`, key: (one) => one.podsReady ?? 0, number: true },
          { name: "What is wrong", cell: (one) => shown(one.trouble ?? "") },
        ]}
      />
    </>
  );
}

/** Where the log ends; while it is followed, the point is its end. */
function ending(log: Timeline): string {
  if (ended.value) return `The log ends at ${stamp(log.lastTime)}.`;
  return live.value ? "" : `The log goes on; its last event so far is of ${stamp(log.lastTime)}.`;
}

function Marks({ marks }: { marks: readonly Mark[] }) {
  const kinds = new Map<string, number>();
  for (const one of marks) kinds.set(one.kind, (kinds.get(one.kind) ?? 0) + 1);
  return (
    <>
      {kinds.size > 0 && (
        <p>{[...kinds].map(([kind, number]) => `${plain(kind)}: ${count(number)}`).join(", ")}.</p>
      )}
      <Table
        caption="What disturbed nodes and jobs, the latest first"
        rows={[...marks].reverse()}
        rowsInSight={8}
        none="No node was lost or cordoned, and no job was preempted, had a pod that failed, fell below its quorum, lost workers, started again or failed up to this point."
        columns={[
          { name: "Event", cell: (one) => <Point at={one.at} />, number: true },
          { name: "Time", cell: (one) => clock(one.time), number: true },
          { name: "What", cell: (one) => plain(one.kind), key: (one) => one.kind },
          {
            name: "Which",
            cell: (one) => (one.kind.startsWith("node") ? one.subjects.map(shown).join(", ") : <Links jobs={one.subjects} at={one.at} />),
          },
        ]}
      />
    </>
  );
}

function Links({ jobs, at }: { jobs: readonly string[]; at: number }) {
  const [first] = jobs;
  return (
    <>
      {first && <JobLink job={first} at={at} />}
      {jobs.length > 1 && <span title={jobs.map(shown).join(", ")}> and {jobs.length - 1} more</span>}
    </>
  );
}

const named = (sort: string, name: string): string => (sort === "user" && name ? person(name) : shown(name));

/** Who held the room, and whether it was placed only while the other job waited; or for whom room is kept. */
const holder = (row: Waits["rows"][number]): string => {
  const who = named(heldBy.value, row.holder);
  if (row.cause === "Reservation" && who) return `kept for ${who}`;
  return row.cause === "Order" ? `${who}, placed first` : who || "–";
};

const BY = ["queue", "job", "namespace", "user", "day"];
const HELD_BY = ["queue", "job", "user"];

function Waited({ to }: { to: string }) {
  const answer = useAnswer<Waits>(to ? "waits" : "", { to, by: by.value, heldBy: heldBy.value });
  const value = answer.value;
  return (
    <>
      <h3>What jobs waited for</h3>
      <AsOf at={answer.of.to} />
      <div class="controls">
        <Choice label="Of each" of={by} options={BY} />
        <Choice label="Held by each" of={heldBy} options={HELD_BY} />
        {value && (
          <span class="faint" role="status">
            {duration(value.waitMs / 1000)} in all, in which the jobs could have used {hours(value.gpuMs)} GPU hours
          </span>
        )}
      </div>
      {value ? (
        <Table
          caption="What jobs waited for"
          rows={value.rows}
          rowsInSight={10}
          none="No job waited up to this point."
          columns={[
            { name: by.value[0]!.toUpperCase() + by.value.slice(1), cell: (row) => named(by.value, row.group), key: (row) => row.group },
            { name: "Waited for", cell: (row) => awaited(row.cause), key: (row) => row.cause },
            { name: "Held by", cell: holder, key: (row) => row.holder },
            { name: "Time waited", cell: (row) => duration(row.waitMs / 1000), key: (row) => row.waitMs, number: true },
            { name: "GPU hours", cell: (row) => (row.cause === "Infeasible" ? "–" : hours(row.gpuMs)), key: (row) => row.gpuMs, number: true },
          ]}
        />
      ) : (
        <Missing {...answer} none="" />
      )}
    </>
  );
}

function Choice({ label, of, options }: { label: string; of: typeof by; options: readonly string[] }) {
  return (
    <label>
      {label}{" "}
      <select value={of.value} onChange={(event) => (of.value = event.currentTarget.value)}>
        {options.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </label>
  );
}

function Preempted({ to }: { to: string }) {
  const answer = useAnswer<Preemptions>(to ? "preemptions" : "", { to });
  const value = answer.value;
  if (!value) return <Missing {...answer} none="" />;
  return (
    <>
      <AsOf at={answer.of.to} />
      <Table
        caption="Preemptions, the latest first"
        rows={[...value.preemptions].reverse()}
        rowsInSight={10}
        none="No job gave room to another one up to this point."
        columns={[
          { name: "Event", cell: (one) => <Point at={one.offset} />, key: (one) => one.offset, number: true },
          { name: "Time", cell: (one) => clock(one.timeMs / 1000), number: true },
          { name: "Room for", cell: (one) => <JobLink job={one.job} at={one.offset} />, key: (one) => one.job },
          { name: "From", cell: (one) => <Links jobs={one.victims.map((of) => of.job)} at={one.offset} /> },
          { name: "Why", cell: (one) => [...new Set(one.victims.map((of) => VICTIMS[of.kind] ?? plain(of.kind)))].join(", ") },
          {
            name: "Pods",
            cell: (one) => count(one.victims.reduce((sum, of) => sum + of.pods, 0)),
            number: true,
          },
          { name: "GPU hours lost", cell: (one) => hours(one.harmGpuMs), key: (one) => one.harmGpuMs, number: true },
          {
            name: "Began after",
            cell: (one) => (one.gainedMs == null ? "–" : duration(one.gainedMs / 1000)),
            number: true,
          },
        ]}
      />
    </>
  );
}
