// The cluster at a point: each node as a row of its GPUs, by topology, coloured by job, queue or health.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Course, OverTime } from "./course";
import { Figure, JobLink, Legend, Missing, Note, SaveSvg, Table } from "./parts";
import { moment, openJob, problem } from "./store";
import type { Key, Pen } from "./svg";
import type { Moment, Node, Series } from "./types";
import { colour, dark, prepared, useWidth } from "./use";
import { amount, count, jobColours, many, queueColours, shown } from "./words";

type By = "job" | "queue" | "health";
const by = signal<By>("job");
const level = signal("");
const HEAD_PX = 24;
/** GPUs of at most this width are drawn as bars. */
const BARS_PX = 5;
const NO_NODES = "No nodes were seen up to this point of the log, or you may not list them.";

interface Box {
  node: Node;
  x: number;
  y: number;
  width: number;
  height: number;
}
interface Layout {
  boxes: Box[];
  heads: { text: string; y: number }[];
  height: number;
  cell: number;
  label: number;
}

/** Where each node is drawn. GPUs are smaller the more nodes there are, so that 5,000 nodes stay in sight. */
function layOut(now: Moment, width: number): Layout {
  const index = now.topologyLevels.indexOf(level.value);
  const groups = new Map<string, Node[]>();
  for (const node of now.nodes) {
    const domain = index < 0 ? "" : (node.topology[index] ?? "") || `no ${level.value}`;
    const group = groups.get(domain);
    if (group) group.push(node);
    else groups.set(domain, [node]);
  }
  const number = now.nodes.length;
  const most = Math.max(1, ...now.nodes.map((one) => one.gpus));
  const columns = Math.min(most, 16);
  // On a phone, two of few nodes are side by side.
  const half = Math.max(8, Math.floor((width / 2 - 9) / columns));
  const cell = number <= 60 ? Math.min(26, half) : number <= 300 ? 14 : number <= 1200 ? 8 : 5;
  const label = number <= 60 ? 20 : 0;
  const boxWidth = Math.max(columns * cell + (cell > 5 ? 6 : 2), label ? 96 : 0);
  const perRow = Math.max(1, Math.floor((width + 6) / (boxWidth + 6)));
  const gap = label || cell > 8 ? 10 : cell > 5 ? 4 : 3;
  const boxHeight = Math.ceil(most / columns) * cell + (cell > 5 ? 4 : 1) + label;
  const boxes: Box[] = [];
  const heads: Layout["heads"] = [];
  let y = 0;
  for (const [domain, nodes] of [...groups].sort(([one], [other]) => (one < other ? -1 : 1))) {
    if (index >= 0) {
      heads.push({ text: `${shown(domain)} · ${many(nodes.length, "node")}`, y });
      y += HEAD_PX;
    }
    nodes.forEach((node, place) => {
      const row = Math.floor(place / perRow);
      const x = (place % perRow) * (boxWidth + 6);
      boxes.push({ node, x, y: y + row * (boxHeight + gap), width: boxWidth, height: boxHeight });
    });
    y += Math.ceil(nodes.length / perRow) * (boxHeight + gap);
  }
  return { boxes, heads, height: Math.max(y, 1), cell, label };
}

/** The colour of each GPU of a node. `tone` is `colour`. */
function fills(node: Node, now: Moment, tone: typeof colour): string[] {
  const colours: string[] = [];
  for (const [index, gpus] of node.jobs) {
    const job = now.jobs[index];
    if (!job) continue;
    const fill =
      by.value === "job" ? jobColours.of(job.job) : by.value === "queue" ? queueColours.of(job.queue) : tone("--used");
    for (let gpu = 0; gpu < Math.ceil(gpus) && colours.length < node.gpus; gpu++) colours.push(fill);
  }
  // What pods of others hold.
  while (colours.length < node.gpus - node.gpusFree) colours.push(tone("--others"));
  const rest = by.value === "health" && !node.ready ? "--lost" : by.value === "health" && !node.schedulable ? "--closed" : "--free";
  const free = tone(rest);
  while (colours.length < node.gpus) colours.push(free);
  return by.value === "health" && rest !== "--free" ? colours.map(() => free) : colours;
}

function paint(pen: Pen, layout: Layout, now: Moment, focus: number): void {
  const { cell } = layout;
  const gap = cell > 8 ? 2 : 1;
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = "middle";
  pen.fillStyle = colour("--text");
  for (const head of layout.heads) pen.fillText(head.text, 0, head.y + HEAD_PX / 2);
  // Of thousands of nodes, most have the same few colours: to ask for one, or to set it, takes as long as to draw.
  const known = new Map<string, string>();
  const tone = (name: string): string => {
    const found = known.get(name) ?? colour(name);
    known.set(name, found);
    return found;
  };
  let set = "";
  layout.boxes.forEach((box, number) => {
    const { node } = box;
    const columns = Math.min(Math.max(node.gpus, 1), 16);
    if (layout.label) {
      pen.fillStyle = set = tone("--text");
      pen.fillText(shown(node.name), box.x + 2, box.y + 9, box.width - 4);
    }
    const colours = fills(node, now, tone);
    for (let gpu = 0, next = 1; gpu < colours.length; gpu = next++) {
      const fill = colours[gpu] ?? "";
      // Nobody counts GPUs that are so small: those beside each other that are alike are one bar.
      while (cell <= BARS_PX && next % columns && colours[next] === fill) next++;
      if (fill !== set) pen.fillStyle = set = fill;
      const x = box.x + 2 + (gpu % columns) * cell;
      const y = box.y + layout.label + 2 + Math.floor(gpu / columns) * cell;
      pen.fillRect(x, y, (next - gpu) * cell - gap, cell - gap);
    }
    if (!node.gpus) {
      pen.fillStyle = set = tone("--faint");
      pen.fillText("no GPUs", box.x + 2, box.y + layout.label + cell / 2);
    }
    if (!node.ready || !node.schedulable) {
      pen.strokeStyle = colour(node.ready ? "--closed" : "--lost");
      pen.lineWidth = cell > 8 ? 2 : 1;
      pen.beginPath();
      pen.moveTo(box.x + 1, box.y + box.height - 1);
      pen.lineTo(box.x + Math.max(node.gpus, 1) * cell, box.y + layout.label + 1);
      pen.stroke();
    }
    if (number === focus) {
      pen.strokeStyle = colour("--accent");
      pen.lineWidth = 2;
      pen.strokeRect(box.x - 1, box.y, box.width, box.height);
    }
  });
}

export function Cluster() {
  const now = moment.value;
  if (!now) return <Missing problem={problem.value} busy={!problem.value} none="" />;
  if (!now.nodes.length) {
    return (
      <>
        <Totals now={now} />
        <Note>{NO_NODES}</Note>
      </>
    );
  }
  return (
    <>
      <Totals now={now} />
      <div class="controls">
        <label>
          Colour by{" "}
          <select value={by.value} onChange={(event) => (by.value = event.currentTarget.value as By)}>
            <option value="job">job</option>
            <option value="queue">queue</option>
            <option value="health">health</option>
          </select>
        </label>
        {now.topologyLevels.length > 0 && (
          <label>
            Group by{" "}
            <select value={level.value} onChange={(event) => (level.value = event.currentTarget.value)}>
              <option value="">nothing</option>
              {now.topologyLevels.map((one) => (
                <option key={one} value={one}>
                  {one}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Grid now={now} />
      <OverTime courses={gpusOverTime} />
      <details>
        <summary>The nodes as a table</summary>
        <Nodes now={now} />
      </details>
    </>
  );
}

function Totals({ now }: { now: Moment }) {
  const { totals } = now;
  return (
    <dl class="figures">
      <Figure name="GPUs used" value={totals.gpusUsed} of={totals.gpus} />
      <Figure name="GPUs reserved" value={totals.gpusReserved} />
      <Figure name="GPUs free beside used ones" value={totals.gpusBesideUsed} />
      <Figure name="Jobs waiting" value={totals.jobsWaiting} />
      <Figure name="Jobs running or starting" value={totals.jobsRunning} />
      <Figure name="Jobs ended" value={totals.jobsEnded} />
    </dl>
  );
}

function gpusOverTime(of: Series): Course[] {
  return [
    {
      title: "GPUs over time",
      label: "GPUs used, idle, reserved, and free beside used ones over time",
      height: 200,
      about:
        "Used, idle and out of service add up to all GPUs; those out of service are free on nodes that are cordoned or not ready. " +
        "Reserved ones are kept for waiting jobs, and may still be in use. Those free beside used ones are on nodes where others are used.",
      lines: [
        { name: "all GPUs", values: of.gpus, colour: "--faint", dashed: true },
        { name: "used", values: of.gpusUsed, colour: "#0072b2", fill: true },
        { name: "idle", values: of.gpusIdle, colour: "#009e73" },
        {
          name: "out of service",
          values: of.gpus.map((all, place) => all - (of.gpusUsed[place] ?? 0) - (of.gpusIdle[place] ?? 0)),
          colour: "#e69f00",
        },
        { name: "reserved", values: of.gpusReserved, colour: "#cc79a7" },
        { name: "free beside used ones", values: of.gpusBesideUsed, colour: "#d55e00" },
      ],
    },
  ];
}

function Grid({ now }: { now: Moment }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [focus, setFocus] = useState(-1);
  const [hover, setHover] = useState<{ number: number; x: number; y: number } | null>(null);
  const layout = useMemo(() => layOut(now, width), [now, width, level.value, shown("")]);
  useEffect(() => {
    if (canvas.current && width) paint(prepared(canvas.current, width, layout.height), layout, now, focus);
  });
  void dark.value;
  const find = (event: MouseEvent): number => {
    const { offsetX, offsetY } = event;
    return layout.boxes.findIndex(
      (one) => offsetX >= one.x && offsetX < one.x + one.width && offsetY >= one.y && offsetY < one.y + one.height,
    );
  };
  const pointed = hover ?? (focus >= 0 ? at(layout, focus) : null);
  const node = pointed && layout.boxes[pointed.number]?.node;
  return (
    <>
      <div class="caption">
        <Legend items={legend(now)} />
        <SaveSvg
          of={() => ({
            title: "Nodes",
            legend: () => legend(now),
            width,
            height: layout.height,
            draw: (pen) => paint(pen, layout, now, -1),
          })}
        />
      </div>
      <div class="canvas" ref={box}>
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${many(now.nodes.length, "node")}; the arrow keys go from node to node, the table below says the same`}
          onPointerMove={(event) => {
            const number = find(event);
            setHover(number < 0 ? null : { number, x: event.offsetX, y: event.offsetY });
          }}
          onPointerLeave={() => setHover(null)}
          onClick={(event) => open(layout.boxes[find(event)]?.node, now)}
          onFocus={() => focus < 0 && setFocus(0)}
          onBlur={() => setFocus(-1)}
          onKeyDown={(event) => {
            const next = moved(layout, focus, event.key);
            if (next === undefined && event.key !== "Enter") return;
            event.preventDefault();
            if (next === undefined) open(layout.boxes[focus]?.node, now);
            else setFocus(next);
          }}
        />
        {node && (
          <div class="tip" style={{ left: `${Math.min(pointed.x + 12, Math.max(0, width - 230))}px`, top: `${pointed.y + 14}px` }}>
            <About node={node} now={now} />
          </div>
        )}
        <span class="unseen" aria-live="polite">
          {focus >= 0 && node ? `${shown(node.name)}: ${amount(node.gpusFree)} of ${amount(node.gpus)} GPUs free` : ""}
        </span>
      </div>
    </>
  );
}

function at(layout: Layout, number: number): { number: number; x: number; y: number } {
  const box = layout.boxes[number];
  return { number, x: box?.x ?? 0, y: (box?.y ?? 0) + (box?.height ?? 0) - 8 };
}

function moved(layout: Layout, focus: number, key: string): number | undefined {
  const last = layout.boxes.length - 1;
  if (key === "ArrowRight") return Math.min(focus + 1, last);
  if (key === "ArrowLeft") return Math.max(focus - 1, 0);
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  const here = layout.boxes[focus];
  const sign = key === "ArrowDown" ? 1 : -1;
  for (let number = focus + sign; number >= 0 && number <= last; number += sign) {
    const box = layout.boxes[number];
    if (box && here && box.x === here.x && box.y !== here.y) return number;
  }
  return focus;
}

function open(node: Node | undefined, now: Moment): void {
  const job = now.jobs[node?.jobs[0]?.[0] ?? -1];
  if (job) openJob(job.job);
}

function About({ node, now }: { node: Node; now: Moment }) {
  return (
    <>
      <strong>{shown(node.name)}</strong>
      <div>
        {amount(node.gpusFree)} of {amount(node.gpus)} GPUs free{health(node) && `, ${health(node)}`}
      </div>
      {node.jobs.slice(0, 8).map(([index, gpus]) => (
        <div key={index}>
          {amount(gpus)} {shown(now.jobs[index]?.job ?? "")}
        </div>
      ))}
      {node.topology.length > 0 && <div class="faint">{node.topology.map(shown).join(" · ")}</div>}
    </>
  );
}

function health(node: Node): string {
  return node.ready ? (node.schedulable ? "" : "cordoned") : "not ready";
}

function legend(now: Moment): Key[] {
  const items: Key[] = [];
  if (by.value === "health") items.push(["used", colour("--used")]);
  else {
    const placed = new Set(now.nodes.flatMap((one) => one.jobs.map(([index]) => index)));
    const names = new Map<string, string>();
    for (const index of placed) {
      const job = now.jobs[index];
      if (job && by.value === "job") names.set(job.job, jobColours.of(job.job));
      if (job && by.value === "queue") names.set(job.queue, queueColours.of(job.queue));
    }
    items.push(...[...names].slice(0, 12).map(([name, fill]): [string, string] => [shown(name), fill]));
    if (names.size > 12) items.push([`and ${count(names.size - 12)} more`, "transparent"]);
  }
  items.push(["free", colour("--free")]);
  if (now.nodes.some((one) => !one.schedulable && one.ready)) items.push(["cordoned", colour("--closed"), "struck"]);
  if (now.nodes.some((one) => !one.ready)) items.push(["not ready", colour("--lost"), "struck"]);
  return items;
}

function Nodes({ now }: { now: Moment }) {
  return (
    <Table
      caption="Nodes"
      rows={now.nodes}
      none={NO_NODES}
      columns={[
        { name: "Node", cell: (node) => shown(node.name), key: (node) => node.name },
        { name: "GPUs", cell: (node) => amount(node.gpus), key: (node) => node.gpus, number: true },
        { name: "Free", cell: (node) => amount(node.gpusFree), key: (node) => node.gpusFree, number: true },
        { name: "Health", cell: (node) => health(node) || "ready", key: health },
        {
          name: "Jobs",
          cell: (node) =>
            node.jobs.length
              ? node.jobs.map(([index, gpus], place) => (
                  <span key={index}>
                    {place > 0 && ", "}
                    <JobLink job={now.jobs[index]?.job ?? ""} /> ({amount(gpus)})
                  </span>
                ))
              : "none",
        },
        { name: "Topology", cell: (node) => node.topology.map(shown).join(" · ") || "–" },
      ]}
    />
  );
}
