// Names of jobs and nodes that answers have brought beside the moment's own, so that an export can replace them too.
import { signal, type Signal } from "@preact/signals";
import { ask } from "./api";
import type { Gantt, NodeGantt } from "./types";

export const seenJobs = signal<readonly string[]>([]);
export const seenNodes = signal<readonly string[]>([]);

export const see = (jobs: readonly string[]): void => add(seenJobs, jobs);

function add(to: Signal<readonly string[]>, names: readonly string[]): void {
  const known = new Set(to.peek());
  const fresh = names.filter((one) => one && !known.has(one));
  if (fresh.length) to.value = [...to.peek(), ...fresh];
}

/** Know all jobs and nodes of the log: events may name those that are gone. */
export async function seeAll(): Promise<void> {
  const [jobs, nodes] = await Promise.all([ask<Gantt>("gantt"), ask<NodeGantt>("node-gantt")]);
  if (jobs.left || nodes.left) throw new Error("the log has too many jobs or nodes to replace the names of all");
  see(jobs.jobs.map((one) => one.job));
  see(nodes.jobs);
  add(
    seenNodes,
    nodes.nodes.map((one) => one.node),
  );
}
