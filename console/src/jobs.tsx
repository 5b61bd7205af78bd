// All jobs at a point, with search, a filter by stage, and an order.
import { signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { AsOf, JobLink, Missing, Table } from "./parts";
import { moment, problem, settledPoint, timeline } from "./store";
import type { Gantt, Job, Standing, Standings } from "./types";
import { useAnswer } from "./use";
import { amount, awaited, count, hours, many, person, podsNow, shown, spell } from "./words";

const search = signal("");
const stage = signal("");
const deleted = signal(false);

/** A job of the table; of a deleted one, only the name, the queue and the offset are known from which on it is gone. */
type Row = Pick<Job, "job" | "queue" | "stage"> & Partial<Job> & { standing?: Standing | undefined; deletedAt?: number };

/** The order without another choice: jobs that wait in the queue, as they stand there, other waiting ones, those that run,
 * those with troubled pods first, those that ended, the latest first, and those that were deleted. */
function rank(job: Row): number {
  if (job.stage === "Deleted") return 5;
  if (job.stage === "Failed" || job.stage === "Succeeded") return 4;
  return job.standing?.position ? 0 : job.waitCause ? 1 : job.trouble ? 2 : 3;
}
/** The place in the queue; jobs without one come after all others. */
const position = (job: Row): number => job.standing?.position || Number.MAX_SAFE_INTEGER;
const inOrder = (one: Row, other: Row): number =>
  rank(one) - rank(other) ||
  (rank(one) === 4 ? (other.since ?? 0) - (one.since ?? 0) : position(one) - position(other));
const age = (job: Row, now: number): number => now - (job.submitted ?? now);

export function Jobs() {
  const now = moment.value;
  const gone = useDeleted(deleted.value);
  const standings = useAnswer<Standings>(now ? "standings" : "", { at: settledPoint.value });
  const jobs = useMemo((): Row[] | undefined => {
    const of = new Map(standings.value?.jobs.map((one) => [one.job, one]));
    const there = now?.jobs.map((one): Row => ({ ...one, standing: of.get(one.job) }));
    return there && [...there, ...gone.rows].sort(inOrder);
  }, [now, gone.rows, standings.value]);
  const stages = useMemo(() => [...new Set(jobs?.map((one) => one.stage))].sort(), [jobs]);
  const found = useMemo(() => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (jobs ?? []).filter(
      (one) =>
        (!stage.value || one.stage === stage.value) &&
        words.every((word) => `${one.job} ${one.queue} ${person(one.standing?.user ?? "")} ${waitsFor(one)}`.toLowerCase().includes(word)),
    );
  }, [jobs, search.value, stage.value]);
  if (!now) return <Missing problem={problem.value} busy={!problem.value} none="" />;
  const none = jobs?.length ? "No job matches the search." : "No jobs were seen up to this point of the log.";
  return (
    <>
      <div class="controls">
        <label>
          Search{" "}
          <input
            type="search"
            value={search.value}
            placeholder="name, queue, user or cause"
            onInput={(event) => (search.value = event.currentTarget.value)}
          />
        </label>
        <label>
          Stage{" "}
          <select value={stage.value} onChange={(event) => (stage.value = event.currentTarget.value)}>
            <option value="">all</option>
            {stages.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={deleted.value}
            onChange={(event) => (deleted.value = event.currentTarget.checked)}
          />{" "}
          deleted jobs too
        </label>
        <span class="faint" role="status">
          {found.length === jobs?.length ? many(found.length, "job") : `${count(found.length)} of ${many(jobs?.length ?? 0, "job")}`}
          {gone.left > 0 && `; ${many(gone.left, "more job")} of the log can't be listed`}
        </span>
      </div>
      <AsOf at={standings.of.at} />
      <Table
        caption="Jobs"
        id={(job) => `${job.job} ${job.submitted ?? ""} ${job.deletedAt ?? ""}`}
        rows={found}
        none={none}
        columns={[
          { name: "Job", cell: (job) => <JobLink job={job.job} />, key: (job) => job.job },
          {
            name: "Stage",
            cell: (job) => (
              <>
                <Stage job={job} />
                {job.since !== undefined && ` ${spell(now.time - job.since)}`}
              </>
            ),
            key: (job) => job.stage,
          },
          {
            name: "Position",
            cell: (job) => (job.standing?.position ? count(job.standing.position) : "–"),
            key: position,
            number: true,
            least: true,
          },
          {
            name: "Starts",
            cell: (job) => starts(job.standing, now.time),
            key: (job) => job.standing?.expected ?? Number.MAX_SAFE_INTEGER,
            number: true,
            least: true,
          },
          { name: "Queue", cell: (job) => shown(job.queue) || "–", key: (job) => job.queue },
          { name: "User", cell: (job) => user(job), key: user, short: true },
          { name: "Priority", cell: priority, key: (job) => job.priority ?? -Infinity, number: true },
          {
            name: "Pods",
            cell: (job) =>
              job.podsWanted == null
                ? "–"
                : ["Succeeded", "Failed"].includes(job.stage)
                  ? count(job.podsWanted) // which it had
                  : podsOf(job),
            key: (job) => job.podsPlaced ?? -1,
            number: true,
          },
          { name: "GPUs asked", cell: (job) => amount(job.gpus), key: (job) => job.gpus ?? -1, number: true },
          {
            name: "GPU hours",
            cell: (job) => (job.standing?.gpuMs == null ? "–" : hours(job.standing.gpuMs)),
            key: (job) => job.standing?.gpuMs ?? -1,
            number: true,
          },
          { name: "Attempt", cell: (job) => job.attempt ?? "–", key: (job) => job.attempt ?? -1, number: true },
          {
            name: "Age",
            cell: (job) => (job.submitted === undefined ? "–" : spell(age(job, now.time))),
            key: (job) => age(job, now.time),
            number: true,
          },
          { name: "Waits for, or lacks", cell: (job) => waitsFor(job), key: waitsFor },
        ]}
      />
    </>
  );
}

/** Those with nodes of those wanted, and how many of them run, are ready or failed, unless all that are wanted are ready. */
function podsOf(job: Row): string {
  const { podsPlaced = 0, podsRunning = 0, podsReady = podsRunning } = job;
  const podsWanted = job.podsWanted ?? 0;
  const now = podsReady === podsWanted ? "" : podsRunning === podsWanted ? `${count(podsReady)} ready` : podsNow(job);
  return `${count(podsPlaced)}/${count(podsWanted)}${now && `: ${now}`}`;
}

const user = (job: Row): string => (job.standing ? person(job.standing.user) : "–");

/** How far away the expected start is; one that is over is overdue, and a guess has a question mark. */
function starts(of: Standing | undefined, now: number): string {
  if (of?.expected == null) return "–";
  return `${of.expected > now ? `in ${spell(of.expected - now)}` : "overdue"}${of.guess ? "?" : ""}`;
}

const NONE: Row[] = [];

/** The jobs that were deleted up to the point, as rows, also those whose names others have now; `left` jobs of the log
 * are not looked at. */
export function useDeleted(asked: boolean): { rows: Row[]; left: number } {
  const [now, log] = [moment.value, timeline.value];
  const answer = useAnswer<Gantt>(asked && log ? "gantt" : "", { from: log?.first, to: log?.last });
  const rows = useMemo(() => {
    if (!answer.value || !now) return NONE;
    return (answer.value.deleted ?? [])
      .filter((one) => one.at <= now.at)
      .map((one): Row => ({ job: one.job, queue: one.queue, stage: "Deleted", deletedAt: one.at }));
  }, [answer.value, now]);
  return { rows, left: answer.value?.deletedLeft ?? 0 };
}

export function Stage({ job }: { job: Pick<Job, "stage"> }) {
  return <span class={`stage ${job.stage}`}>{job.stage}</span>;
}

/** What a job waits for, and what is wrong with its pods; one that runs may still lack pods. */
function waitsFor(job: Row): string {
  const lacks = job.stage === "Running" ? (job.podsWanted ?? 0) - (job.podsPlaced ?? 0) : 0;
  const further = job.waitCause ? awaited(job.waitCause) : lacks > 0 ? many(lacks, "more pod") : "";
  return [shown(job.trouble ?? ""), further].filter(Boolean).join("; ") || "–";
}

/** The priority that counts in its queue, and that of the job if it has another. It may be unknown, as its message says. */
export function priority(job: { priority?: number | null; ownPriority?: number | null }): string {
  const { priority: counts, ownPriority: own = counts } = job;
  return counts === null ? "unknown" : counts === undefined ? "–" : own === counts ? String(counts) : `${counts} (job: ${own})`;
}
