// All jobs at a point, with search, a filter by stage, and an order.
import { signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { JobLink, Missing, Table } from "./parts";
import { moment, problem } from "./store";
import type { Job } from "./types";
import { amount, count, duration, many, plain, shown } from "./words";

const search = signal("");
const stage = signal("");

export function Jobs() {
  const now = moment.value;
  const jobs = now?.jobs;
  const stages = useMemo(() => [...new Set(jobs?.map((one) => one.stage))].sort(), [jobs]);
  const found = useMemo(() => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (jobs ?? []).filter(
      (one) =>
        (!stage.value || one.stage === stage.value) &&
        words.every((word) => `${one.job} ${one.queue} ${one.waitCause ?? ""}`.toLowerCase().includes(word)),
    );
  }, [jobs, search.value, stage.value]);
  if (!now) return <Missing problem={problem.value} busy={!problem.value} none="" />;
  const none = now.jobs.length ? "No job matches the search." : "No jobs were seen up to this point of the log.";
  return (
    <>
      <div class="controls">
        <label>
          Search{" "}
          <input
            type="search"
            value={search.value}
            placeholder="name, queue or cause"
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
        <span class="faint" role="status">
          {found.length === now.jobs.length
            ? many(found.length, "job")
            : `${count(found.length)} of ${many(now.jobs.length, "job")}`}
        </span>
      </div>
      <Table
        caption="Jobs"
        rows={found}
        none={none}
        columns={[
          { name: "Job", cell: (job) => <JobLink job={job.job} />, key: (job) => job.job },
          { name: "Stage", cell: (job) => <Stage job={job} />, key: (job) => job.stage },
          { name: "Queue", cell: (job) => shown(job.queue), key: (job) => job.queue, wide: true },
          { name: "Priority", cell: (job) => job.priority, key: (job) => job.priority, number: true, wide: true },
          {
            name: "Pods",
            cell: (job) => `${count(job.podsPlaced)} of ${count(job.podsWanted)}`,
            key: (job) => job.podsPlaced,
            number: true,
          },
          { name: "GPUs", cell: (job) => amount(job.gpus), key: (job) => job.gpus ?? -1, number: true },
          {
            name: "In stage for",
            cell: (job) => duration(now.time - job.since),
            key: (job) => now.time - job.since,
            number: true,
          },
          { name: "Waits for", cell: (job) => waitsFor(job), key: waitsFor, wide: true },
        ]}
      />
    </>
  );
}

export function Stage({ job }: { job: Pick<Job, "stage"> }) {
  return <span class={`stage ${job.stage}`}>{job.stage}</span>;
}

/** What a job waits for; one that runs may still lack pods. */
function waitsFor(job: Job): string {
  if (job.waitCause) return plain(job.waitCause);
  const runs = job.stage === "Running" && job.podsPlaced < job.podsWanted;
  return runs ? many(job.podsWanted - job.podsPlaced, "more pod") : "–";
}
