// Bars over time: for each job when it waited, in the colour of the cause, and when it ran; for each node which jobs
// had it.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { JobLink, Legend, Missing, Note, SaveSvg, Table } from "./parts";
import { seenJobs, see } from "./seen";
import { chosen, masked, moment, openJob, timeline } from "./store";
import type { Pen } from "./svg";
import type { Bar, Gantt as OfJobs, NodeGantt as OfNodes } from "./types";
import { colour, dark, prepared, useAnswer, useWidth } from "./use";
import { amount, awaited, causeColours, clock, count, duration, jobColours, many, shown } from "./words";

const ROW_PX = 24;
const VIEW_PX = 480;
const AXIS_PX = 22;
/** Names in the legend: further ones have tooltips. */
const NAMED = 12;

const rows = signal<"jobs" | "nodes">("jobs");
/** The job whose row shall be in sight, where there are more rows than have room. */
export const inSight = signal("");

/** A bar as it is drawn: in one of the `lanes` of its row, thin where nothing runs. */
interface Drawn {
  from: number;
  to: number;
  job: string;
  fill: () => string;
  about: string[];
  lane?: number;
  thin?: boolean;
}
interface Row {
  name: string;
  bars: Drawn[];
  lanes: number;
}

export function Gantt() {
  return (
    <>
      <div class="controls">
        <label>
          Rows{" "}
          <select value={rows.value} onChange={(event) => (rows.value = event.currentTarget.value as "jobs" | "nodes")}>
            <option value="jobs">jobs</option>
            <option value="nodes">nodes</option>
          </select>
        </label>
      </div>
      {rows.value === "jobs" ? <Jobs /> : <Nodes />}
    </>
  );
}

function Jobs() {
  const log = timeline.value;
  // To the end of the log: what comes after the point is drawn pale.
  const answer = useAnswer<OfJobs>(log ? "gantt" : "", { from: log?.first, to: log?.last });
  const jobs = answer.value?.jobs;
  useEffect(() => see(jobs?.map((one) => one.job) ?? []), [jobs]);
  const drawn = useMemo(() => jobs?.map(rowOfJob) ?? [], [jobs]);
  if (!jobs || !log) return <Missing {...answer} none="The log is empty." />;
  if (!jobs.length) return <Note>No job waited or ran in this log.</Note>;
  const causes = [...new Set(jobs.flatMap((one) => one.bars).map(causeOf).filter(Boolean))];
  return (
    <>
      <Chart
        of="job"
        legend={() => [
          ...causes.map((cause): [string, string] => [`waits for ${awaited(cause)}`, causeColours.of(cause)]),
          ["runs", colour("--runs")],
        ]}
        drawn={drawn}
        begin={log.firstTime}
        end={Math.max(log.lastTime, log.firstTime + 1)}
      />
      {!!answer.value?.left && <Note>{many(answer.value.left, "more job")} not drawn.</Note>}
      <details>
        <summary>The same as a table</summary>
        <Table
          caption="When jobs waited and ran"
          rows={jobs.flatMap((one) => one.bars.map((bar) => ({ ...bar, job: one.job })))}
          none="No job waited or ran in this log."
          columns={[
            { name: "Job", cell: (bar) => <JobLink job={bar.job} />, key: (bar) => bar.job },
            { name: "From", cell: (bar) => clock(bar.from), key: (bar) => bar.from, number: true },
            { name: "For", cell: (bar) => duration(bar.to - bar.from), key: (bar) => bar.to - bar.from, number: true },
            { name: "What", cell: (bar) => said(bar), key: (bar) => bar.kind },
            { name: "GPUs", cell: (bar) => amount(bar.gpus), key: (bar) => bar.gpus, number: true, wide: true },
            { name: "Nodes", cell: (bar) => bar.nodes.map(shown).join(", ") || "–", wide: true },
          ]}
        />
      </details>
    </>
  );
}

const causeOf = (bar: Bar): string => (bar.kind === "waiting" ? (bar.cause ?? "unknown") : "");
const said = (bar: Bar): string =>
  bar.kind === "waiting" ? `waits for ${awaited(causeOf(bar))}` : `runs, attempt ${bar.attempt}`;

function rowOfJob({ job, bars }: OfJobs["jobs"][number]): Row {
  const drawn = bars.map((bar): Drawn => {
    const thin = bar.kind === "waiting";
    const gpus = bar.gpus > 0 ? [`${amount(bar.gpus)} GPUs on ${many(bar.nodes.length, "node")}`] : [];
    const fill = thin ? () => causeColours.of(causeOf(bar)) : () => colour("--runs");
    return { from: bar.from, to: bar.to, job, thin, fill, about: [said(bar), ...gpus] };
  });
  return { name: job, bars: drawn, lanes: 1 };
}

function Nodes() {
  const log = timeline.value;
  const answer = useAnswer<OfNodes>(log ? "node-gantt" : "", { from: log?.first, to: log?.last });
  const value = answer.value;
  useEffect(() => see(value?.jobs ?? []), [value]);
  const drawn = useMemo(() => value?.nodes.map((one) => rowOfNode(one, value.jobs)) ?? [], [value]);
  if (!value || !log) return <Missing {...answer} none="The log is empty." />;
  if (!drawn.length) return <Note>No job had a node in this log.</Note>;
  const named = value.jobs.slice(0, NAMED).map((job): [string, string] => [shown(job), jobColours.of(job)]);
  if (value.jobs.length > NAMED) named.push([`and ${count(value.jobs.length - NAMED)} more`, "transparent"]);
  return (
    <>
      <Chart
        of="node"
        legend={() => named}
        drawn={drawn}
        begin={log.firstTime}
        end={Math.max(log.lastTime, log.firstTime + 1)}
      />
      {!!value.left && <Note>{many(value.left, "earlier bar")} not drawn.</Note>}
      <details>
        <summary>The same as a table</summary>
        <Table
          caption="Which jobs had each node"
          rows={drawn.flatMap((row) => row.bars.map((bar) => ({ ...bar, node: row.name })))}
          none="No job had a node in this log."
          columns={[
            { name: "Node", cell: (bar) => shown(bar.node), key: (bar) => bar.node },
            { name: "Job", cell: (bar) => <JobLink job={bar.job} />, key: (bar) => bar.job },
            { name: "From", cell: (bar) => clock(bar.from), key: (bar) => bar.from, number: true },
            { name: "For", cell: (bar) => duration(bar.to - bar.from), key: (bar) => bar.to - bar.from, number: true },
          ]}
        />
      </details>
    </>
  );
}

/** Jobs that have a node at the same time are in lanes: each takes the first that is free. */
function rowOfNode({ node, bars }: OfNodes["nodes"][number], jobs: string[]): Row {
  const ends: number[] = [];
  const drawn = bars.map(([number, from, to]): Drawn => {
    const free = ends.findIndex((end) => end <= from);
    const lane = free < 0 ? ends.length : free;
    ends[lane] = to;
    const job = jobs[number] ?? "";
    return { from, to, job, lane, fill: () => jobColours.of(job), about: [] };
  });
  return { name: node, bars: drawn, lanes: Math.max(1, ends.length) };
}

function Chart(props: {
  of: "job" | "node";
  legend: () => [string, string][];
  drawn: Row[];
  begin: number;
  end: number;
}) {
  const { of, legend, drawn, begin, end } = props;
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [top, setTop] = useState(0);
  const [focus, setFocus] = useState(-1);
  const [tip, setTip] = useState<{ x: number; y: number; row: Row; bar: Drawn } | null>(null);
  const whole = drawn.length * ROW_PX + AXIS_PX;
  const height = Math.min(whole, VIEW_PX);
  const names = width > 700 ? 180 : 90;
  const x = (time: number): number => names + ((time - begin) / (end - begin)) * (width - names - 4);
  const now = moment.value?.time ?? end;
  void [dark.value, masked.value, seenJobs.value, chosen.value];
  useEffect(() => {
    if (canvas.current && width) paint(prepared(canvas.current, width, height), { top, height, focus });
  });

  useEffect(() => {
    const number = of === "job" ? drawn.findIndex((row) => row.name === inSight.value) : -1;
    const edge = number * ROW_PX;
    const there = box.current?.scrollTop ?? 0;
    if (number < 0 || (edge >= there && edge + ROW_PX + AXIS_PX <= there + height)) return;
    box.current?.scrollTo({ top: edge - height / 2 });
  }, [inSight.value, drawn]);

  /** The upper edge and the height of a bar within its row. */
  function place(row: Row, bar: Drawn): [number, number] {
    if (bar.thin) return [ROW_PX / 2 - 4, 8];
    const lane = (ROW_PX - 8) / row.lanes;
    return [4 + (bar.lane ?? 0) * lane, Math.max(1, lane - (row.lanes > 1 ? 1 : 0))];
  }

  /** Draws the rows from `top` pixels below the first on, as many as have room in the height. */
  function paint(pen: Pen, { top, height, focus }: { top: number; height: number; focus: number }): void {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const first = Math.floor(top / ROW_PX);
    lines(pen, height);
    const text = colour("--text");
    for (let number = first; number < Math.min(drawn.length, first + height / ROW_PX + 1); number++) {
      const row = drawn[number]!;
      const y = number * ROW_PX - top + AXIS_PX;
      const named = number === focus || (of === "job" && row.name === chosen.value);
      pen.fillStyle = named ? colour("--chosen") : "transparent";
      pen.fillRect(0, y, width, ROW_PX);
      for (const bar of row.bars) {
        const left = x(Math.max(bar.from, begin));
        const wide = Math.max(2, x(Math.min(bar.to, end)) - left);
        const past = bar.from > now ? 0 : Math.max(0, Math.min(wide, x(now) - left));
        const [edge, high] = place(row, bar);
        pen.fillStyle = bar.fill();
        if (past) pen.fillRect(left, y + edge, past, high);
        pen.globalAlpha = 0.35;
        if (past < wide) pen.fillRect(left + past, y + edge, wide - past, high);
        pen.globalAlpha = 1;
      }
      pen.fillStyle = text;
      pen.fillText(shortened(pen, shown(row.name), names - 8), 2, y + ROW_PX / 2);
    }
    axis(pen, height);
  }

  const steps = Math.max(1, Math.floor((width - names) / 110));
  const timeAt = (number: number): number => begin + (number / steps) * (end - begin);

  function upright(pen: Pen, time: number, height: number): void {
    pen.beginPath();
    pen.moveTo(x(time), 0);
    pen.lineTo(x(time), height);
    pen.stroke();
  }

  function lines(pen: Pen, height: number): void {
    pen.strokeStyle = colour("--line");
    for (let number = 0; number < steps; number++) upright(pen, timeAt(number), height);
  }

  function axis(pen: Pen, height: number): void {
    pen.fillStyle = colour("--ground");
    pen.fillRect(0, 0, width, AXIS_PX);
    pen.fillStyle = colour("--faint");
    for (let number = 0; number < steps; number++) pen.fillText(clock(timeAt(number)), x(timeAt(number)) + 3, AXIS_PX / 2);
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    upright(pen, now, height);
  }

  /** The row and the bar at a place of the canvas. */
  function at(offsetX: number, offsetY: number): { row?: Row | undefined; bar?: Drawn | undefined } {
    const number = Math.floor((offsetY - AXIS_PX + top) / ROW_PX);
    const row = offsetY > AXIS_PX ? drawn[number] : undefined;
    const within = offsetY - AXIS_PX + top - number * ROW_PX;
    const met = row?.bars.filter((one) => offsetX >= x(one.from) - 1 && offsetX <= x(one.to) + 2);
    const nearest = (one: Drawn): number => {
      const [edge, high] = place(row!, one);
      return Math.abs(within - edge - high / 2);
    };
    return { row, bar: met?.sort((one, other) => nearest(one) - nearest(other))[0] };
  }

  /** The job that a click or Enter opens: that of the bar, of the row, or of what the node has at the point. */
  function open(row: Row | undefined, bar: Drawn | undefined): void {
    const found = bar ?? row?.bars.find((one) => one.from <= now && now <= one.to) ?? row?.bars[0];
    if (found) openJob(found.job);
  }

  return (
    <>
      <div class="caption">
        <Legend items={legend()} />
        <SaveSvg
          of={() => ({
            title: of === "job" ? "Jobs over time" : "Nodes over time",
            legend,
            width,
            height: whole,
            draw: (pen) => paint(pen, { top: 0, height: whole, focus: -1 }),
          })}
        />
      </div>
      <div
        class="gantt"
        ref={box}
        style={{ height: `${height}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div style={{ height: `${whole}px` }}>
          <canvas
            ref={canvas}
            tabIndex={0}
            role="img"
            aria-label={`${many(drawn.length, of)} over time; the arrow keys up and down choose one, Enter opens ${of === "job" ? "it" : "its job"}`}
            onPointerMove={(event) => {
              const { offsetX, offsetY } = event;
              const { row, bar } = at(offsetX, offsetY);
              setTip(row && bar ? { x: offsetX, y: offsetY, row, bar } : null);
            }}
            onPointerLeave={() => setTip(null)}
            onClick={(event) => {
              const { row, bar } = at(event.offsetX, event.offsetY);
              open(row, bar);
            }}
            onKeyDown={(event) => {
              const sign = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
              if (event.key === "Enter") open(drawn[focus], undefined);
              if (!sign) return;
              event.preventDefault();
              const next = Math.max(0, Math.min(drawn.length - 1, focus + sign));
              setFocus(next);
              box.current?.scrollTo({ top: Math.max(0, (next + 2) * ROW_PX - height / 2) });
            }}
          />
          {tip && (
            <div class="tip" style={{ left: `${Math.min(tip.x + 12, Math.max(0, width - 240))}px`, top: `${top + tip.y + 14}px` }}>
              <strong>{shown(tip.bar.job)}</strong>
              {of === "node" && <div>{shown(tip.row.name)}</div>}
              <div>
                {clock(tip.bar.from)} to {clock(tip.bar.to)}, {duration(tip.bar.to - tip.bar.from)}
              </div>
              {tip.bar.about.map((line) => (
                <div key={line}>{line}</div>
              ))}
            </div>
          )}
        </div>
        <span class="unseen" aria-live="polite">
          {focus >= 0 ? shown(drawn[focus]?.name ?? "") : ""}
        </span>
      </div>
    </>
  );
}

function shortened(pen: Pen, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  const name = text.slice(text.indexOf("/") + 1);
  let end = name.length;
  while (end > 1 && pen.measureText(`${name.slice(0, end)}…`).width > width) end--;
  return end < name.length ? `${name.slice(0, end)}…` : name;
}
