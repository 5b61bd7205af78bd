// Bars over time: for each job when it waited, in the colour of the cause, and when it ran; for each node which jobs
// had its GPUs.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { JobLink, Legend, Missing, Note, SaveSvg, Table } from "./parts";
import { seenJobs, see } from "./seen";
import { Zooming } from "./slider";
import { chosen, inAddress, masked, moment, openJob, timeline } from "./store";
import { type Key, type Pen, strips } from "./svg";
import type { Bar, Gantt as OfJobs, NodeGantt as OfNodes } from "./types";
import { colour, dark, prepared, useAnswer, useWidth } from "./use";
import { amount, awaited, causeLook, clock, count, duration, jobColours, many, person, type Shape, shown, tick, ticks } from "./words";
import { ofPart, onWheel, part, show, whole, zoom } from "./zoom";

const ROW_PX = 24;
const LANE_PX = 6;
const VIEW_PX = 480;
const AXIS_PX = 22;
/** Names in the legend: further ones have tooltips. */
const NAMED = 12;

/** How the chart looks, in the address; an empty text is the first choice. */
const rows = inAddress("rows", "gantt");
const order = inAddress("order", "gantt");
const only = inAddress("only", "gantt");
const find = inAddress("find", "gantt");
/** The job whose row shall be in sight, where there are more rows than have room. */
export const inSight = signal("");

/** When a bar ends, and how it ended; without that it lasts, or another one follows. */
interface Ended {
  to: number;
  end?: string | undefined;
}
/** A bar as it is drawn: in some of the `lanes` of its row, thin with a shape where nothing runs. */
interface Drawn extends Ended {
  from: number;
  job: string;
  fill: () => string;
  about: string[];
  lanes?: readonly number[];
  thin?: Shape | undefined;
}
/** A row; one without bars is the heading of those below it. */
interface Row {
  name: string;
  bars: Drawn[];
  lanes: number;
  swatch?: string;
}
type OfJob = OfJobs["jobs"][number];

/** `steady`: the rows keep their order, whatever the point is. */
export function Gantt({ steady = false }: { steady?: boolean }) {
  const nodes = rows.value === "nodes";
  return (
    <>
      <div class="controls">
        <Choice name="Rows" of={rows} among={[["", "jobs"], ["nodes", "nodes"]]} />
        {!nodes && !steady && <Choice name="Order" of={order} among={[["", "queue"], ["start", "start"], ["user", "user"]]} />}
        {!nodes && (
          <Choice
            name="Show"
            of={only}
            among={[["", "all"], ["now", "waiting or running at the point"], ["waited", "that waited"], ["failed", "that failed"]]}
          />
        )}
        <label>
          Search{" "}
          <input
            type="search"
            size={26}
            value={find.value}
            placeholder={nodes ? "node or job" : "name, queue, user or cause"}
            onInput={(event) => (find.value = event.currentTarget.value)}
          />
        </label>
        {/* Beside the line of time there is no room for it on a phone, and a replay has none there. */}
        <span class={steady ? "" : "narrow"}>
          <Zooming />
        </span>
      </div>
      {nodes ? <Nodes /> : <Jobs steady={steady} />}
    </>
  );
}

function Choice({ name, of, among }: { name: string; of: { value: string }; among: [string, string][] }) {
  return (
    <label>
      {name}{" "}
      <select value={of.value} onChange={(event) => (of.value = event.currentTarget.value)}>
        {among.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

const words = (): string[] => find.value.toLowerCase().split(/\s+/).filter(Boolean);

/** The bar that a job has at a time; bars that last end with the answer. */
const barAt = (job: OfJob, now: number): Bar | undefined =>
  job.bars.find((bar, place) => bar.from <= now && (now < bar.to || (place === job.bars.length - 1 && lasts(bar))));
/** The queue that a job was in then. */
const queueOf = (job: OfJob, bar?: Bar): string => bar?.queue || job.queue;
const lasts = (bar: Bar): boolean => !bar.outcome && bar.to >= (timeline.value?.lastTime ?? 0);
/** The end of a bar; one that lasts goes on to now while the clock runs. */
const lasting = ({ to, end }: Ended, now: number): number => (!end && to >= (timeline.value?.lastTime ?? Infinity) ? Math.max(to, now) : to);

function wanted(job: OfJob, now: number): boolean {
  if (only.value === "now" && !barAt(job, now)) return false;
  if (only.value === "waited" && !job.bars.some((bar) => bar.kind === "waiting")) return false;
  if (only.value === "failed" && !job.bars.some((bar) => bar.outcome === "Failed")) return false;
  const causes = job.bars.map((bar) => (bar.kind === "waiting" ? awaited(causeOf(bar)) : "")).join(" ");
  const queues = job.bars.map((bar) => queueOf(job, bar)).join(" ");
  const text = `${job.job} ${job.queue} ${queues} ${job.user ?? ""} ${causes}`.toLowerCase();
  return words().every((word) => text.includes(word));
}

/** The jobs in groups, each with its heading: those that wait or run at a time first, and then the others. */
function grouped(jobs: readonly OfJob[], now: number): [string, OfJob[]][] {
  const groups = new Map<string, OfJob[]>();
  const rest: OfJob[] = [];
  for (const job of jobs) {
    const bar = barAt(job, now);
    const key = order.value === "start" ? "" : order.value === "user" ? person(job.user || "user unknown") : shown(queueOf(job, bar) || "no queue");
    if (!bar) rest.push(job);
    else if (!groups.get(key)?.push(job)) groups.set(key, [job]);
  }
  const begun = (job: OfJob): number => job.bars[0]?.from ?? 0;
  const found: [string, OfJob[]][] = [];
  for (const [key, of] of [...groups].sort(([one], [other]) => (one < other ? -1 : 1))) {
    of.sort((one, other) => begun(one) - begun(other) || ((one.user ?? "") < (other.user ?? "") ? -1 : 1));
    const run = of.filter((job) => barAt(job, now)?.kind === "running").length;
    found.push([`${key && `${key}: `}${run} running, ${of.length - run} waiting`, of]);
  }
  const until = (job: OfJob): number => job.bars.at(-1)?.to ?? 0;
  rest.sort((one, other) => until(other) - until(one));
  if (rest.length) found.push([`${count(rest.length)} that neither wait nor run at this point`, rest]);
  return found;
}

function Jobs({ steady }: { steady: boolean }) {
  const log = timeline.value;
  // To the end of the log: what comes after the point is drawn pale.
  const span = zoom.value ? ofPart() : { from: log?.first, to: log?.last };
  const answer = useAnswer<OfJobs>(log ? "gantt" : "", { ...span, log: log?.last });
  const jobs = answer.value?.jobs;
  const now = moment.value?.time ?? whole.value[1];
  useEffect(() => see(jobs?.map((one) => one.job) ?? []), [jobs]);
  const found = jobs?.filter((job) => wanted(job, now)) ?? [];
  const groups = steady ? null : grouped(found, now);
  const key = JSON.stringify([groups?.map(([name, of]) => [name, of.length]), found.length, masked.value]);
  const drawn = useMemo(
    () => groups?.flatMap(([name, of]) => [{ name, bars: [], lanes: 1 }, ...of.map(rowOfJob)]) ?? found.map(rowOfJob),
    // The order within a group follows from the answer, and from who is in the group.
    [jobs, key, order.value, only.value, find.value],
  );
  if (!jobs || !log) return <Missing {...answer} none="The log is empty." />;
  if (!jobs.length) return <Note>No job waited or ran {zoom.value ? "in this time" : "in this log"}.</Note>;
  const bars = found.flatMap((one) => one.bars);
  const causes = [...new Set(bars.map(causeOf).filter(Boolean))];
  const ends = [...new Set(bars.filter((bar) => bar.kind === "running").map((bar) => bar.outcome ?? ""))].sort();
  return (
    <>
      <Chart
        of="job"
        legend={() => [
          ...causes.map((cause): Key => [`waits: ${awaited(cause)}`, ...causeLook(cause)]),
          ...ends.map((end): Key => [`runs${end && `, ${ENDS[end] ?? end}`}`, colour(END_COLOURS[end] ?? "--runs")]),
        ]}
        drawn={drawn}
      />
      {!found.length && <Note>No job matches.</Note>}
      {!!answer.value?.left && <Note>{many(answer.value.left, "more job")} not drawn.</Note>}
      <details>
        <summary>The same as a table</summary>
        <Table
          caption="When jobs waited and ran"
          rows={found.flatMap((one) => one.bars.map((bar) => ({ ...bar, job: one.job, to: lasting({ to: bar.to, end: bar.outcome }, now) })))}
          none="No job matches."
          columns={[
            { name: "Job", cell: (bar) => <JobLink job={bar.job} />, key: (bar) => bar.job },
            { name: "From", cell: (bar) => clock(bar.from), key: (bar) => bar.from, number: true },
            { name: "For", cell: (bar) => duration(bar.to - bar.from), key: (bar) => bar.to - bar.from, number: true },
            { name: "What", cell: (bar) => said(bar), key: (bar) => bar.kind },
            { name: "GPUs", cell: (bar) => amount(bar.gpus), key: (bar) => bar.gpus, number: true },
            { name: "Nodes", cell: (bar) => bar.nodes.map(shown).join(", ") || "–" },
          ]}
        />
      </details>
    </>
  );
}

/** How running ended, in words and in colours. */
const ENDS: Record<string, string> = { Succeeded: "succeeded", Failed: "failed", Rescheduling: "had to start again", Suspended: "was suspended" };
const END_COLOURS: Record<string, string> = { Succeeded: "--succeeded", Failed: "--failed", Rescheduling: "--again", Suspended: "--suspended" };

const causeOf = (bar: Bar): string => (bar.kind === "waiting" ? (bar.cause ?? "unknown") : "");
const said = (bar: Bar): string =>
  bar.kind === "waiting"
    ? `waits: ${awaited(causeOf(bar))}${bar.outcome ? `, then ${ENDS[bar.outcome] ?? bar.outcome}` : ""}`
    : `runs, ${bar.attempt ? `attempt r${bar.attempt}` : "first attempt"}${bar.outcome ? `, ${ENDS[bar.outcome] ?? bar.outcome}` : ""}`;

function rowOfJob(of: OfJob): Row {
  const { job, bars, user } = of;
  const drawn = bars.map((bar): Drawn => {
    const [ofCause, shape] = causeLook(causeOf(bar));
    const thin = bar.kind === "waiting" ? shape : undefined;
    const gpus = bar.gpus > 0 ? [`${amount(bar.gpus)} GPUs on ${many(bar.nodes.length, "node")}`] : [];
    const fill = thin ? () => ofCause : () => colour(END_COLOURS[bar.outcome ?? ""] ?? "--runs");
    const queue = queueOf(of, bar);
    const whose = [queue && `queue ${shown(queue)}`, user && person(user)].filter(Boolean).join(", ");
    return { from: bar.from, to: bar.to, job, thin, fill, about: [said(bar), ...gpus, ...(whose ? [whose] : [])], end: bar.outcome ?? "" };
  });
  return { name: job, bars: drawn, lanes: 1, swatch: jobColours.of(job) };
}

function Nodes() {
  const log = timeline.value;
  const span = zoom.value ? ofPart() : { from: log?.first, to: log?.last };
  const answer = useAnswer<OfNodes>(log ? "node-gantt" : "", { ...span, log: log?.last });
  const value = answer.value;
  useEffect(() => see(value?.jobs ?? []), [value]);
  const every = useMemo(() => value?.nodes.map((one) => rowOfNode(one, value.jobs)) ?? [], [value]);
  const found = words();
  const now = moment.value?.time ?? whole.value[1];
  const drawn = useMemo(
    () =>
      every.filter(({ name, bars }) => found.every((word) => name.toLowerCase().includes(word) || bars.some((bar) => bar.job.toLowerCase().includes(word)))),
    [every, find.value],
  );
  if (!value || !log) return <Missing {...answer} none="The log is empty." />;
  if (!every.length) return <Note>No job had a node {zoom.value ? "in this time" : "in this log"}.</Note>;
  const named = value.jobs.slice(0, NAMED).map((job): Key => [shown(job), jobColours.of(job)]);
  if (value.jobs.length > NAMED) named.push([`and ${count(value.jobs.length - NAMED)} more`, "transparent"]);
  return (
    <>
      <Chart of="node" legend={() => named} drawn={drawn} />
      {!drawn.length && <Note>No node matches.</Note>}
      {!!value.left && <Note>{many(value.left, "earlier bar")} not drawn.</Note>}
      <details>
        <summary>The same as a table</summary>
        <Table
          caption="Which jobs had each node"
          rows={drawn.flatMap((row) => row.bars.map((bar) => ({ ...bar, node: row.name, to: lasting(bar, now) })))}
          none="No node matches."
          columns={[
            { name: "Node", cell: (bar) => shown(bar.node), key: (bar) => bar.node },
            { name: "Job", cell: (bar) => <JobLink job={bar.job} />, key: (bar) => bar.job },
            { name: "From", cell: (bar) => clock(bar.from), key: (bar) => bar.from, number: true },
            { name: "For", cell: (bar) => duration(bar.to - bar.from), key: (bar) => bar.to - bar.from, number: true },
            { name: "GPUs", cell: (bar) => amount(bar.about.length ? bar.lanes?.length : 0), key: (bar) => bar.lanes?.length ?? 0, number: true },
          ]}
        />
      </details>
    </>
  );
}

/** A node's GPUs are lanes, and a job is in as many as it has: in those that it had before, else in the first that are
 * free. Jobs without GPUs are drawn on nodes without GPUs alone, each in a lane. */
function rowOfNode({ node, bars, gpus }: OfNodes["nodes"][number], jobs: string[]): Row {
  const ends = Array.from({ length: gpus }, () => -Infinity);
  const last = new Map<number, readonly number[]>();
  const drawn: Drawn[] = [];
  for (const [number, from, to, held] of bars) {
    if (gpus && !held) continue;
    const before = last.get(number) ?? [];
    const free = [...before, ...ends.keys()].filter((lane, place, all) => ends[lane]! <= from && all.indexOf(lane) === place);
    const lanes = Array.from({ length: Math.max(1, Math.ceil(held)) }, (_, place) => free[place] ?? ends.push(-Infinity) - 1);
    for (const lane of lanes) ends[lane] = to;
    last.set(number, lanes);
    const job = jobs[number] ?? "";
    drawn.push({ from, to, job, lanes, fill: () => jobColours.of(job), about: held ? [many(held, "GPU")] : [] });
  }
  return { name: node, bars: drawn, lanes: Math.max(1, ends.length) };
}

function Chart(props: {
  of: "job" | "node";
  legend: () => Key[];
  drawn: Row[];
}) {
  const { of, legend, drawn } = props;
  const [begin, end] = part.value;
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [top, setTop] = useState(0);
  const [focus, setFocus] = useState(-1);
  const [tip, setTip] = useState<{ x: number; y: number; row: Row; bar: Drawn } | null>(null);
  /** The part that is being chosen by dragging, in pixels. */
  const [dragged, setDragged] = useState<readonly [number, number] | null>(null);
  const rowPx = Math.max(ROW_PX, ...drawn.map((row) => (row.lanes > 1 ? row.lanes * LANE_PX + 8 : 0)));
  const all = drawn.length * rowPx + AXIS_PX;
  const height = Math.min(all, VIEW_PX);
  const names = width > 700 ? 180 : 90;
  const x = (time: number): number => names + ((time - begin) / (end - begin)) * (width - names - 4);
  const timeOf = (place: number): number => begin + (Math.max(0, place - names) / Math.max(1, width - names - 4)) * (end - begin);
  const now = moment.value?.time ?? end;
  void [dark.value, masked.value, seenJobs.value, chosen.value];
  useEffect(() => {
    if (canvas.current && width) paint(prepared(canvas.current, width, height), { top, height, focus });
  });

  useEffect(() => {
    const number = of === "job" ? drawn.findIndex((row) => row.name === inSight.value) : -1;
    const edge = number * rowPx;
    const there = box.current?.scrollTop ?? 0;
    if (number < 0 || (edge >= there && edge + rowPx + AXIS_PX <= there + height)) return;
    box.current?.scrollTo({ top: edge - height / 2 });
  }, [inSight.value, drawn]);

  /** The upper edges and the heights of a bar within its row, one for each run of lanes. */
  function places(row: Row, bar: Drawn): [number, number][] {
    if (bar.thin) return [[rowPx / 2 - 4, 8]];
    const lane = (rowPx - 8) / row.lanes;
    return (bar.lanes ?? [0]).map((number) => [4 + number * lane, Math.max(1, lane - (row.lanes > 1 ? 1 : 0))]);
  }

  /** Draws the rows from `top` pixels below the first on, as many as have room in the height. */
  function paint(pen: Pen, { top, height, focus }: { top: number; height: number; focus: number }): void {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const first = Math.floor(top / rowPx);
    lines(pen, height);
    const text = colour("--text");
    const full = drawn.filter((row) => row.bars.length).map((row) => row.name);
    const longest = full.reduce((one, other) => (other.length > one.length ? other : one), "");
    // Where one has no room with its namespace, none has it, unless two jobs would look alike.
    const short = pen.measureText(longest).width > names - 16 && new Set(full.map(bare)).size === new Set(full).size;
    for (let number = first; number < Math.min(drawn.length, first + height / rowPx + 1); number++) {
      const row = drawn[number]!;
      const y = number * rowPx - top + AXIS_PX;
      if (!row.bars.length) {
        heading(pen, row, y);
        continue;
      }
      const named = number === focus || (of === "job" && row.name === chosen.value);
      pen.fillStyle = named ? colour("--chosen") : "transparent";
      pen.fillRect(0, y, width, rowPx);
      if (row.lanes > 1) {
        pen.fillStyle = colour("--lane");
        pen.fillRect(names, y + 4, width - names - 4, rowPx - 9);
      }
      for (const bar of row.bars) if (lasting(bar, now) >= begin && bar.from <= end) paintBar(pen, row, bar, y);
      if (row.swatch) {
        pen.fillStyle = row.swatch;
        pen.fillRect(2, y + 6, 4, rowPx - 12);
      }
      pen.fillStyle = text;
      const left = row.swatch ? 10 : 2;
      const name = shown(row.name);
      pen.fillText(shortened(pen, short ? bare(name) : name, names - left - 6), left, y + rowPx / 2);
    }
    axis(pen, height);
  }

  function heading(pen: Pen, row: Row, y: number): void {
    pen.fillStyle = colour("--raised");
    pen.fillRect(0, y, width, rowPx);
    pen.fillStyle = colour("--faint");
    pen.fillText(row.name, 2, y + rowPx / 2);
  }

  function paintBar(pen: Pen, row: Row, bar: Drawn, y: number): void {
    const left = x(Math.max(bar.from, begin));
    const wide = Math.max(2, x(Math.min(lasting(bar, now), end)) - left);
    const past = bar.from > now ? 0 : Math.max(0, Math.min(wide, x(now) - left));
    pen.fillStyle = bar.fill();
    for (const [edge, high] of places(row, bar)) {
      for (const [upper, thick] of strips(y + edge, high, bar.thin ?? "thick")) {
        if (past) pen.fillRect(left, upper, past, thick);
        pen.globalAlpha = 0.35;
        if (past < wide) pen.fillRect(left + past, upper, wide - past, thick);
        pen.globalAlpha = 1;
      }
      if (bar.end !== "Failed" || bar.to > end) continue;
      // Failed is told by more than a colour.
      pen.strokeStyle = colour("--bad");
      pen.lineWidth = 2;
      pen.beginPath();
      for (const [from, to] of [[0, high], [high, 0]] as const) {
        pen.moveTo(left + wide - 4, y + edge + from);
        pen.lineTo(left + wide + 4, y + edge + to);
      }
      pen.stroke();
      pen.lineWidth = 1;
    }
  }

  const times = ticks(begin, end, Math.max(1, Math.floor((width - names) / 90)));

  function upright(pen: Pen, time: number, height: number): void {
    pen.beginPath();
    pen.moveTo(x(time), 0);
    pen.lineTo(x(time), height);
    pen.stroke();
  }

  function lines(pen: Pen, height: number): void {
    pen.lineWidth = 1;
    pen.strokeStyle = colour("--line");
    for (const time of times) upright(pen, time, height);
  }

  function axis(pen: Pen, height: number): void {
    pen.fillStyle = colour("--ground");
    pen.fillRect(0, 0, width, AXIS_PX);
    pen.fillStyle = colour("--faint");
    for (const time of times) {
      const text = tick(time, end - begin);
      const wide = pen.measureText(text).width + 3;
      // The last one may have room on its other side alone, or none.
      if (x(time) + wide < width) pen.fillText(text, x(time) + 3, AXIS_PX / 2);
      else if (times.length < 2 || x(times[1]!) - x(times[0]!) > 2 * wide) pen.fillText(text, x(time) - wide, AXIS_PX / 2);
    }
    if (now < begin || now > end) return;
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    upright(pen, now, height);
  }

  /** The row and the bar at a place of the canvas. */
  function at(offsetX: number, offsetY: number): { row?: Row | undefined; bar?: Drawn | undefined } {
    const number = Math.floor((offsetY - AXIS_PX + top) / rowPx);
    const row = offsetY > AXIS_PX ? drawn[number] : undefined;
    const within = offsetY - AXIS_PX + top - number * rowPx;
    const met = offsetX < names ? [] : row?.bars.filter((one) => offsetX >= x(one.from) - 1 && offsetX <= x(lasting(one, now)) + 2);
    const nearest = (one: Drawn): number => Math.min(...places(row!, one).map(([edge, high]) => Math.abs(within - edge - high / 2)));
    return { row, bar: met?.sort((one, other) => nearest(one) - nearest(other))[0] };
  }

  /** The job that a click or Enter opens: that of the bar, of the row, or of what the node has at the point. */
  function open(row: Row | undefined, bar: Drawn | undefined): void {
    const found = bar ?? row?.bars.find((one) => one.from <= now && now <= lasting(one, now)) ?? row?.bars[0];
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
            height: all,
            draw: (pen) => paint(pen, { top: 0, height: all, focus: -1 }),
          })}
        />
      </div>
      <div
        class="gantt"
        ref={box}
        style={{ height: `${height}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div style={{ height: `${all}px` }}>
          <canvas
            ref={canvas}
            tabIndex={0}
            role="img"
            aria-label={`${many(rowsOf(drawn), of)} over time; the arrow keys up and down choose one, Enter opens ${of === "job" ? "it" : "its job"}`}
            onPointerDown={(event) => {
              // A finger scrolls.
              if (event.pointerType === "touch" || event.button || event.offsetX < names) return;
              event.currentTarget.setPointerCapture(event.pointerId);
              setDragged([event.offsetX, event.offsetX]);
            }}
            onPointerMove={(event) => {
              const { offsetX, offsetY } = event;
              if (dragged) setDragged([dragged[0], offsetX]);
              const { row, bar } = at(offsetX, offsetY);
              // Names are cut off where they have no room.
              event.currentTarget.title = (offsetX < names && shown(row?.name ?? "")) || (bar ? "" : HOW);
              setTip(row && bar && !isDrag(dragged) ? { x: offsetX, y: offsetY, row, bar } : null);
            }}
            onPointerLeave={() => setTip(null)}
            onPointerCancel={() => setDragged(null)}
            onClick={(event) => {
              const span = dragged;
              setDragged(null);
              if (span && isDrag(span)) return show(timeOf(Math.min(...span)), timeOf(Math.max(...span)));
              const { row, bar } = at(event.offsetX, event.offsetY);
              open(row, bar);
            }}
            onWheel={(event) => {
              // Without a key, the wheel scrolls the rows.
              if (event.ctrlKey || event.shiftKey || event.offsetY < AXIS_PX) onWheel(event, timeOf(event.offsetX));
            }}
            onKeyDown={(event) => {
              const sign = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
              if (event.key === "Enter") open(drawn[focus], undefined);
              if (!sign) return;
              event.preventDefault();
              let next = Math.min(focus, drawn.length) + sign;
              while (drawn[next] && !drawn[next]!.bars.length) next += sign; // headings
              if (!drawn[next]) return;
              setFocus(next);
              box.current?.scrollTo({ top: Math.max(0, (next + 2) * rowPx - height / 2) });
            }}
          />
          {isDrag(dragged) && (
            <span
              class="dragged"
              style={{ left: `${Math.min(...dragged)}px`, width: `${Math.abs(dragged[1] - dragged[0])}px`, top: `${top}px`, height: `${height}px` }}
            />
          )}
          {tip && (
            <div class="tip" style={{ left: `${Math.min(tip.x + 12, Math.max(0, width - 240))}px`, top: `${top + tip.y + 14}px` }}>
              <strong>{shown(tip.bar.job)}</strong>
              {of === "node" && <div>{shown(tip.row.name)}</div>}
              <div>
                {clock(tip.bar.from)} to {clock(lasting(tip.bar, now))}, {duration(lasting(tip.bar, now) - tip.bar.from)}
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

const rowsOf = (drawn: readonly Row[]): number => drawn.filter((row) => row.bars.length).length;
const HOW = "Drag to zoom; or Ctrl and the wheel";
const DRAG_PX = 5;
const isDrag = (span: readonly [number, number] | null): span is readonly [number, number] =>
  !!span && Math.abs(span[1] - span[0]) >= DRAG_PX;

/** Names differ most at their ends, so the middle is left out. */
const TAIL = 6;

/** The name of a job without its namespace. */
const bare = (name: string): string => name.slice(name.indexOf("/") + 1);

function shortened(pen: Pen, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  const name = bare(text);
  const [head, tail] = [name.slice(0, -TAIL), name.slice(-TAIL)];
  let end = head.length;
  const cut = (): string => (end < head.length ? `${head.slice(0, end)}…${tail}` : name);
  while (end > 1 && pen.measureText(cut()).width > width) end--;
  return cut();
}
