// The tree of queues at a point: used against share, capability and demand, and over time.
import { stacked } from "./chart";
import { type Course, OverTime } from "./course";
import { signal } from "@preact/signals";
import { AsOf, JobLink, Missing, Note, Table } from "./parts";
import { moment, problem } from "./store";
import type { Moment, Queue, QueueDetail, Series } from "./types";
import { narrow, useAnswer } from "./use";
import { amount, amounts, queueColours, shown } from "./words";

/** The queue that is shown in detail. */
const open = signal("");

interface Row {
  queue: Queue;
  depth: number;
}

/** The queues in the order of the tree; one whose parent is missing stands at the top. */
function tree(queues: readonly Queue[]): Row[] {
  const known = new Set(queues.map((one) => one.name));
  const below = new Map<string, Queue[]>();
  for (const queue of queues) {
    const parent = queue.parent && known.has(queue.parent) && queue.parent !== queue.name ? queue.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), queue]);
  }
  const rows: Row[] = [];
  const add = (parent: string, depth: number): void => {
    for (const queue of below.get(parent) ?? []) {
      rows.push({ queue, depth });
      if (queue.name) add(queue.name, depth + 1);
    }
  };
  add("", 0);
  return rows;
}

export function Queues() {
  const now = moment.value;
  if (!now) return <Missing problem={problem.value} busy={!problem.value} none="" />;
  return (
    <>
      {now.queues.length > 0 && (
        <p class="faint">The share is what a queue is entitled to now. A queue is below it if it uses less than that and its demand. Choose one to see why its jobs wait.</p>
      )}
      {now.queues.length ? <Tree now={now} /> : <Note>No queues were seen up to this point of the log, or you may not list them.</Note>}
      {now.queues.some((one) => one.name === open.value) && <Detail name={open.value} at={now.at} />}
      <OverTime courses={queuesOverTime} />
    </>
  );
}

function standing(queue: Queue): string {
  if (queue.message) return queue.state === "Unusable" ? `${queue.state}: ${shown(queue.message)}` : shown(queue.message);
  const lacks = Math.min(queue.share ?? 0, queue.demand) - queue.used;
  return lacks > 0 ? `${queue.state}, ${amount(lacks)} below its share` : queue.state;
}

/** One queue: who holds what it uses, and why its jobs wait. */
function Detail({ name, at }: { name: string; at: number }) {
  const answer = useAnswer<QueueDetail>("queue", { name, at });
  const value = answer.value;
  if (!value) return <Missing {...answer} none="" />;
  return (
    <section aria-label={`Queue ${shown(name)}`}>
      <AsOf at={answer.of.at} />
      <h3>Why jobs of {shown(name)} wait</h3>
      <Table
        caption={`Waiting jobs of ${shown(name)}`}
        rows={value.waiting}
        rowsInSight={10}
        none="No job of this queue waits: it uses what its jobs ask for."
        columns={[
          { name: "Position", cell: (one) => one.position, number: true },
          { name: "Job", cell: (one) => <JobLink job={one.job} /> },
          { name: "Priority", cell: (one) => one.priority ?? "unknown", number: true },
          { name: "Why it waits", cell: (one) => shown(one.message) },
        ]}
      />
      <h3>Who holds what {shown(name)} uses</h3>
      <Table
        caption={`Jobs of ${shown(name)} that hold nodes`}
        rows={value.holders}
        rowsInSight={10}
        none="No job of this queue holds nodes."
        columns={[
          { name: "Job", cell: (one) => <JobLink job={one.name} /> },
          { name: "Pods", cell: (one) => one.pods, number: true },
          { name: "Holds", cell: (one) => amounts(Object.entries(one.amounts)) },
        ]}
      />
    </section>
  );
}

/** The same on a narrow screen: a card for each queue. */
function Cards({ rows }: { rows: Row[] }) {
  return (
    <ul class="cards" aria-label="Queues">
      {rows.map(({ queue, depth }) => (
        <li key={queue.name} style={{ marginLeft: `${depth * 12}px` }}>
          <div class="head">
            <Opens queue={queue.name} />
          </div>
          <dl>
            {(
              [
                ["GPUs used", amount(queue.used)],
                ["Share", amount(queue.share)],
                ["Demand", amount(queue.demand)],
                ["Capability", queue.cap == null ? "none" : amount(queue.cap)],
                ["Weight", amount(queue.weight || null)],
                ["Waiting", amount(queue.waiting)],
                ["Running", amount(queue.running)],
                ["State", standing(queue)],
              ] as const
            ).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </li>
      ))}
    </ul>
  );
}

/** Opens and closes the details of a queue. */
function Opens({ queue }: { queue: string }) {
  return (
    <button
      type="button"
      class="plain"
      aria-expanded={open.value === queue}
      title="what it holds, and why its jobs wait"
      onClick={() => (open.value = open.value === queue ? "" : queue)}
    >
      <span aria-hidden="true">{open.value === queue ? "▾ " : "▸ "}</span>
      {shown(queue)}
    </button>
  );
}

function Tree({ now }: { now: Moment }) {
  const rows = tree(now.queues);
  if (narrow.value) return <Cards rows={rows} />;
  const most = Math.max(1, ...now.queues.map((one) => Math.max(one.used, one.demand, one.share ?? 0, one.cap ?? 0)));
  const part = (value: number): string => `${Math.min(100, (value / most) * 100)}%`;
  return (
    <div class="rows" tabIndex={0} role="region" aria-label="Queues">
      <table>
        <caption class="unseen">Queues, in GPUs</caption>
        <thead>
          <tr>
            <th scope="col">Queue</th>
            <th scope="col" class="bars">
              GPUs
            </th>
            <th scope="col" class="number">
              Used
            </th>
            <th scope="col" class="number">
              Share
            </th>
            <th scope="col" class="number">
              Demand
            </th>
            <th scope="col" class="number">
              Capability
            </th>
            <th scope="col" class="number">
              Weight
            </th>
            <th scope="col" class="number">
              Waiting
            </th>
            <th scope="col" class="number">
              Running
            </th>
            <th scope="col">
              State
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ queue, depth }) => (
            <tr key={queue.name}>
              <td style={{ paddingLeft: `${8 + depth * 18}px` }}>
                <Opens queue={queue.name} />
              </td>
              <td class="bars">
                <span class="bar" aria-hidden="true">
                  <span class="demand" style={{ width: part(queue.demand) }} />
                  <span class="used" style={{ width: part(queue.used), background: queueColours.of(queue.name) }} />
                  {queue.share != null && <span class="share" style={{ left: part(queue.share) }} />}
                  {queue.cap != null && <span class="cap" style={{ left: part(queue.cap) }} />}
                </span>
              </td>
              <td class="number">{amount(queue.used)}</td>
              <td class="number">{amount(queue.share)}</td>
              <td class="number">{amount(queue.demand)}</td>
              <td class="number">{queue.cap == null ? "none" : amount(queue.cap)}</td>
              <td class="number">{amount(queue.weight || null)}</td>
              <td class="number">{amount(queue.waiting)}</td>
              <td class="number">{amount(queue.running)}</td>
              <td>{standing(queue)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <ul class="legend">
        <li>
          <span class="swatch solid" /> used
        </li>
        <li>
          <span class="swatch hollow" /> demand
        </li>
        <li>
          <span class="line" /> share
        </li>
        <li>
          <span class="line dashed" /> capability
        </li>
      </ul>
    </div>
  );
}

/** So many queues have a colour of their own: the server keeps the peaks of these. */
const QUEUES = 12;

const sum = (lines: readonly number[][], length: number): number[] =>
  Array.from({ length }, (_, place) => lines.reduce((all, line) => all + line[place]!, 0));

function queuesOverTime(of: Series): Course[] {
  // What each queue uses by itself, so the queues add up to what all use.
  const own = Object.entries(of.queuesOwn).filter(([, used]) => used.some(Boolean));
  const peaks = new Map(own.map(([name, used]) => [name, used.reduce((most, one) => Math.max(most, one), 0)]));
  const byPeak = [...own].sort(([a], [b]) => peaks.get(b)! - peaks.get(a)! || (a < b ? -1 : 1));
  const named = byPeak.slice(0, QUEUES).sort(([a], [b]) => (a < b ? -1 : 1));
  const others = sum(byPeak.slice(QUEUES).map(([, used]) => used), of.times.length);
  const inQueues = sum(own.map(([, used]) => used), of.times.length);
  const foreign = of.gpusUsed.map((used, place) => Math.max(0, used - inQueues[place]!));
  const areas = [
    ...named.map(([name, used]) => ({ name: shown(name), values: used, colour: queueColours.of(name), fill: true })),
    ...(others.some(Boolean) ? [{ name: "other queues", values: others, colour: "--runs", fill: true }] : []),
    ...(foreign.some(Boolean) ? [{ name: "other pods", values: foreign, colour: "--others", fill: true }] : []),
  ];
  return [
    {
      title: "GPUs used, by queue",
      label: "GPUs used by each queue over time, up to all GPUs",
      height: 240,
      about: [
        ...(foreign.some(Boolean) ? ["Other pods are those of no queue, and those of jobs that have ended: they still leave, or cleanPodPolicy None keeps them."] : []),
        ...(inQueues.some((used, place) => used > (of.gpus[place] ?? Infinity))
          ? ["A queue counts pods that failed and aren't replaced yet, whose room others may have, and jobs that wait for others to leave: so the sum may be above all GPUs."]
          : []),
      ].join(" "),
      lines: [{ name: "all GPUs", values: of.gpus, colour: "--faint", dashed: true }, ...stacked(areas)],
    },
    {
      title: "Jobs",
      label: "Jobs that wait and run over time",
      height: 180,
      lines: [
        { name: "waiting", values: of.jobsWaiting, colour: "#d55e00" },
        { name: "running or starting", values: of.jobsRunning, colour: "#0072b2" },
      ],
    },
  ];
}
