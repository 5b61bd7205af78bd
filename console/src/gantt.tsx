// Jobs over time: when each waited, in the colour of the cause, and when it ran.
import { useEffect, useRef, useState } from "preact/hooks";
import { JobLink, Legend, Missing, Note, Table } from "./parts";
import { seenJobs, see } from "./seen";
import { masked, moment, openJob, timeline } from "./store";
import type { Bar, Gantt as Answer } from "./types";
import { colour, dark, prepared, useAnswer, useWidth } from "./use";
import { amount, causeColours, clock, count, duration, many, plain, shown } from "./words";

const ROW_PX = 24;
const VIEW_PX = 480;
const AXIS_PX = 22;

export function Gantt() {
  const log = timeline.value;
  // To the end of the log: what comes after the point is drawn pale.
  const answer = useAnswer<Answer>(log ? "gantt" : "", { from: log?.first, to: log?.last });
  useEffect(() => see(answer.value?.jobs.map((one) => one.job) ?? []), [answer.value]);
  const jobs = answer.value?.jobs;
  if (!jobs || !log) return <Missing {...answer} none="The log is empty." />;
  if (!jobs.length) return <Note>No job waited or ran in this log.</Note>;
  const causes = [...new Set(jobs.flatMap((one) => one.bars).map(causeOf).filter(Boolean))];
  return (
    <>
      <Legend
        items={[
          ...causes.map((cause): [string, string] => [`waits: ${plain(cause)}`, causeColours.of(cause)]),
          ["runs", colour("--runs")],
        ]}
      />
      <Chart jobs={jobs} begin={log.firstTime} end={Math.max(log.lastTime, log.firstTime + 1)} />
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
  bar.kind === "waiting" ? `waits: ${plain(causeOf(bar))}` : `runs, attempt ${bar.attempt}`;

function Chart({ jobs, begin, end }: { jobs: Answer["jobs"]; begin: number; end: number }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [top, setTop] = useState(0);
  const [focus, setFocus] = useState(-1);
  const [tip, setTip] = useState<{ x: number; y: number; job: string; bar: Bar } | null>(null);
  const height = Math.min(jobs.length * ROW_PX + AXIS_PX, VIEW_PX);
  const names = width > 700 ? 180 : 90;
  const x = (time: number): number => names + ((time - begin) / (end - begin)) * (width - names - 4);
  const now = moment.value?.time ?? end;
  void [dark.value, masked.value, seenJobs.value];
  useEffect(() => {
    if (canvas.current && width) paint(canvas.current);
  });

  function paint(element: HTMLCanvasElement): void {
    const pen = prepared(element, width, height);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const first = Math.floor(top / ROW_PX);
    lines(pen);
    const text = colour("--text");
    for (let number = first; number < Math.min(jobs.length, first + height / ROW_PX + 1); number++) {
      const job = jobs[number]!;
      const y = number * ROW_PX - top + AXIS_PX;
      pen.fillStyle = number === focus ? colour("--chosen") : "transparent";
      pen.fillRect(0, y, width, ROW_PX);
      for (const bar of job.bars) {
        const left = x(Math.max(bar.from, begin));
        const wide = Math.max(2, x(Math.min(bar.to, end)) - left);
        pen.globalAlpha = bar.from > now ? 0.35 : 1;
        if (bar.kind === "waiting") {
          pen.fillStyle = causeColours.of(causeOf(bar));
          pen.fillRect(left, y + ROW_PX / 2 - 4, wide, 8);
        } else {
          pen.fillStyle = colour("--runs");
          pen.fillRect(left, y + 4, wide, ROW_PX - 8);
        }
        pen.globalAlpha = 1;
      }
      pen.fillStyle = text;
      pen.fillText(shortened(pen, shown(job.job), names - 8), 2, y + ROW_PX / 2);
    }
    axis(pen);
  }

  const steps = Math.max(1, Math.floor((width - names) / 110));
  const timeAt = (number: number): number => begin + (number / steps) * (end - begin);

  function upright(pen: CanvasRenderingContext2D, time: number): void {
    pen.beginPath();
    pen.moveTo(x(time), 0);
    pen.lineTo(x(time), height);
    pen.stroke();
  }

  function lines(pen: CanvasRenderingContext2D): void {
    pen.strokeStyle = colour("--line");
    for (let number = 0; number < steps; number++) upright(pen, timeAt(number));
  }

  function axis(pen: CanvasRenderingContext2D): void {
    pen.fillStyle = colour("--ground");
    pen.fillRect(0, 0, width, AXIS_PX);
    pen.fillStyle = colour("--faint");
    for (let number = 0; number < steps; number++) pen.fillText(clock(timeAt(number)), x(timeAt(number)) + 3, AXIS_PX / 2);
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    upright(pen, now);
  }

  const rowAt = (offsetY: number): number => Math.floor((offsetY - AXIS_PX + top) / ROW_PX);
  return (
    <div
      class="gantt"
      ref={box}
      style={{ height: `${height}px` }}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div style={{ height: `${jobs.length * ROW_PX + AXIS_PX}px` }}>
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${many(jobs.length, "job")} over time; the arrow keys up and down choose one, Enter opens it`}
          onPointerMove={(event) => {
            const { offsetX, offsetY } = event;
            const job = offsetY > AXIS_PX ? jobs[rowAt(offsetY)] : undefined;
            const bar = job?.bars.find((one) => offsetX >= x(one.from) - 1 && offsetX <= x(one.to) + 2);
            setTip(job && bar ? { x: offsetX, y: offsetY, job: job.job, bar } : null);
          }}
          onPointerLeave={() => setTip(null)}
          onClick={(event) => {
            const job = event.offsetY > AXIS_PX ? jobs[rowAt(event.offsetY)] : undefined;
            if (job) openJob(job.job);
          }}
          onKeyDown={(event) => {
            const sign = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
            const job = jobs[focus];
            if (event.key === "Enter" && job) openJob(job.job);
            if (!sign) return;
            event.preventDefault();
            const next = Math.max(0, Math.min(jobs.length - 1, focus + sign));
            setFocus(next);
            box.current?.scrollTo({ top: Math.max(0, (next + 2) * ROW_PX - height / 2) });
          }}
        />
        {tip && (
          <div class="tip" style={{ left: `${Math.min(tip.x + 12, Math.max(0, width - 240))}px`, top: `${top + tip.y + 14}px` }}>
            <strong>{shown(tip.job)}</strong>
            <div>{said(tip.bar)}</div>
            <div>
              {clock(tip.bar.from)} to {clock(tip.bar.to)}, {duration(tip.bar.to - tip.bar.from)}
            </div>
            {tip.bar.gpus > 0 && (
              <div>
                {amount(tip.bar.gpus)} GPUs on {count(tip.bar.nodes.length)} nodes
              </div>
            )}
          </div>
        )}
      </div>
      <span class="unseen" aria-live="polite">
        {focus >= 0 ? shown(jobs[focus]?.job ?? "") : ""}
      </span>
    </div>
  );
}

function shortened(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  const name = text.slice(text.indexOf("/") + 1);
  let end = name.length;
  while (end > 1 && pen.measureText(`${name.slice(0, end)}…`).width > width) end--;
  return end < name.length ? `${name.slice(0, end)}…` : name;
}

