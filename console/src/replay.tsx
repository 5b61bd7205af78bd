// A page without a server that plays a part of a log: when jobs waited and ran, what was decided, and why each job waited.
// Its facts stand in it as JSON (`arranger export --html`); the console's own parts draw them.
import { batch, computed, effect, signal } from "@preact/signals";
import { render } from "preact";
import "./style.css";
import "./replay.css";
import { embedded } from "./api";
import { Facts as Standing, Happened } from "./explained";
import { Gantt, inSight } from "./gantt";
import { Waiting } from "./job";
import { priority, Stage } from "./jobs";
import { JobLink, Legend, Note, Point } from "./parts";
import { type Facts, type Happening, lastUpTo, type Played, Playback, type Step } from "./playback";
import { addOthers, at, chosen, moment, readOthers, timeline, view } from "./store";
import { Slider } from "./slider";
import { applyScheme, colour, dark, scheme } from "./use";
import { reveal, showAll } from "./zoom";
import { amount, clock, count, duration, kindOf, many, shown, stamp, zone } from "./words";

const log = new Playback(JSON.parse(document.getElementById("facts")!.textContent!) as Facts);
const { playback, version } = log.facts;

/** The time that is shown, in milliseconds since 1970. */
const now = signal(log.firstMs);
const playing = signal(false);
const SPEEDS = [0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];
/** Without a choice, all of it takes about a minute at most. */
const speed = signal(SPEEDS.find((one) => one >= (log.lastMs - log.firstMs) / 60_000) ?? 3600);
const shownAt = computed(() => log.offsetAt(now.value));

/** What the address names and the page doesn't have, until another moment is chosen. */
const astray = signal("");

function seek(timeMs: number): void {
  astray.value = "";
  now.value = Math.max(log.firstMs, Math.min(timeMs, log.lastMs));
  reveal(now.peek() / 1000);
}

function toggle(): void {
  if (!playing.value && now.value >= log.lastMs) seek(log.firstMs);
  playing.value = !playing.value;
}

effect(() => {
  if (!playing.value) return;
  let before = performance.now();
  let frame = requestAnimationFrame(function draw(time) {
    seek(now.peek() + (time - before) * speed.peek());
    before = time;
    if (now.peek() >= log.lastMs) playing.value = false;
    else frame = requestAnimationFrame(draw);
  });
  return () => cancelAnimationFrame(frame);
});

function decision(direction: 1 | -1): void {
  const timeMs = log.decision(now.value, direction);
  playing.value = false;
  if (timeMs !== undefined) seek(timeMs);
}

function faster(direction: 1 | -1): void {
  const number = SPEEDS.indexOf(speed.value) + direction;
  speed.value = SPEEDS[Math.max(0, Math.min(number, SPEEDS.length - 1))]!;
}

const leap = (share: number): void => seek(now.value + share * (log.lastMs - log.firstMs));
const KEYS: Record<string, () => void> = {
  " ": toggle,
  ArrowLeft: () => leap(-0.005),
  ArrowRight: () => leap(0.005),
  PageUp: () => leap(-0.05),
  PageDown: () => leap(0.05),
  Home: () => seek(log.firstMs),
  End: () => seek(log.lastMs),
  n: () => decision(1),
  p: () => decision(-1),
  "+": () => faster(1),
  "-": () => faster(-1),
  "0": showAll,
};

addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || target.closest("input, select")) return;
  if (event.key === " " && target.closest("button, summary")) return;
  if (target.matches(".rows, .story, .gantt") && /^(Page|Home|End)/.test(event.key)) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

function Top() {
  return (
    <div class="top">
      <span class="brand">Arranger: a replay</span>
      <span class="faint span">
        {stamp(log.firstMs / 1000)} to {clock(log.lastMs / 1000)}, {zone(log.firstMs / 1000)}: events{" "}
        {count(playback.first)} to {count(playback.last)}, {many(log.jobs.length, "job")}
      </span>
      <button type="button" onClick={() => applyScheme(dark.value ? "light" : "dark")}>
        {dark.value ? "Light" : "Dark"}
      </button>
    </div>
  );
}

const LINE_PX = 64;

function Time() {
  const seconds = Math.round((now.value - log.firstMs) / 1000);
  return (
    <section class="time" aria-label="Time">
      <Slider
        label="Time of the replay"
        height={LINE_PX}
        time={now.value / 1000}
        values={[0, Math.round((log.lastMs - log.firstMs) / 1000), seconds]}
        text={`${clock(now.value / 1000)}, event ${shownAt.value}`}
        of={[]}
        draw={draw}
        onTime={(time) => {
          playing.value = false;
          seek(time * 1000);
        }}
      />
      <div class="steps">
        <span class="buttons">
          <button type="button" class="main play" onClick={toggle} title="Space">
            {playing.value ? "❚❚ Pause" : "▶ Play"}
          </button>
          <button
            type="button"
            onClick={() => decision(-1)}
            aria-label="The decision before this moment"
            title="the decision before this moment (p)"
          >
            ‹ <span class="wide">Decision</span>
          </button>
          <button
            type="button"
            onClick={() => decision(1)}
            aria-label="The decision after this moment"
            title="the decision after this moment (n)"
          >
            <span class="wide">Decision</span> ›
          </button>
          <label>
            <span class="unseen">Speed</span>
            <select value={speed.value} onChange={(event) => (speed.value = Number(event.currentTarget.value))}>
              {SPEEDS.map((one) => (
                <option key={one} value={one}>
                  {one}×
                </option>
              ))}
            </select>
          </label>
        </span>
        <span class="now">
          <strong>{clock(now.value / 1000)}</strong>
          <span class="faint wide"> event {count(shownAt.value)}</span>
        </span>
        <Legend
          items={[
            ["GPUs used", colour("--used")],
            ["GPUs there", colour("--free")],
            ["jobs waiting", colour("--closed")],
          ]}
        />
      </div>
    </section>
  );
}

/** GPUs that are there and used, and above them how many jobs wait. */
function draw(pen: CanvasRenderingContext2D, x: (time: number) => number): void {
  const { times, gpus, gpusUsed, jobsWaiting } = playback.series;
  const most = Math.max(1, ...gpus);
  const mostWaiting = Math.max(1, ...jobsWaiting);
  times.forEach((time, number) => {
    // Whole pixels, so that no gaps are seen between the samples.
    const [left, right] = [Math.floor(x(time)), Math.ceil(x(times[number + 1] ?? log.lastMs / 1000))];
    const wide = Math.max(right - left, 1);
    const bar = (share: number, fill: string): void => {
      pen.fillStyle = colour(fill);
      pen.fillRect(left, LINE_PX - share * (LINE_PX - 14), wide, share * (LINE_PX - 14));
    };
    bar(gpus[number]! / most, "--free");
    bar(gpusUsed[number]! / most, "--used");
    const waiting = jobsWaiting[number]!;
    if (!waiting) return;
    pen.fillStyle = colour("--closed");
    const high = 3 + (waiting / mostWaiting) * 8;
    pen.fillRect(left, 11 - high, wide, high);
  });
}

function Figures() {
  const number = log.sample(now.value);
  const { gpus, gpusUsed, jobsWaiting, jobsRunning } = playback.series;
  const figures: [string, string, string][] = [
    ["GPUs used", amount(gpusUsed[number] ?? 0), ` of ${amount(gpus[number] ?? 0)}`],
    ["Jobs waiting", count(jobsWaiting[number] ?? 0), ""],
    ["Jobs running or starting", count(jobsRunning[number] ?? 0), ""],
  ];
  return (
    <dl class="figures">
      {figures.map(([name, value, rest]) => (
        <div class="figure" key={name}>
          <dt>{name}</dt>
          <dd>
            {value}
            <span class="faint">{rest}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** What jobs wait for at this moment: those that need nodes, and those that have some and wait for more or for their pods. */
function Queue() {
  const every = log.jobs
    .map((job) => ({ job, step: log.step(job, now.value) }))
    .filter((one): one is { job: Played; step: Step } => !!one.step?.waitingFor);
  return (
    <>
      <Those title="Who waits now, and for what" every={every.filter(({ step }) => waiting(step))} none="Nobody." />
      <Those title="Who has nodes, and still waits" every={every.filter(({ step }) => !waiting(step))} />
    </>
  );
}

/** Whether a job has no nodes for its quorum, as the figure counts it. */
function waiting(step: Step): boolean {
  return log.waits(step) && ["Pending", "Rescheduling"].includes(step.stage);
}

function Those({ title, every: jobs, none }: { title: string; every: { job: Played; step: Step }[]; none?: string }) {
  if (!jobs.length && !none) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {!jobs.length && <p class="faint">{none}</p>}
      <ul class="sentences">
        {jobs.slice(0, 12).map(({ job, step }) => (
          <li key={job.job}>
            <JobLink job={job.job} /> waits for {step.waitingFor}
          </li>
        ))}
      </ul>
      {jobs.length > 12 && <p class="faint">and {count(jobs.length - 12)} more</p>}
    </section>
  );
}

function Job() {
  const job = log.job(chosen.value);
  if (!job) {
    const none = chosen.value && `There is no job ${shown(chosen.value)} in this replay. `;
    return <Note>{none}Choose a job: click its bar, or its name.</Note>;
  }
  const step = log.step(job, now.value);
  const told = step && log.told(job, step, now.value);
  return (
    <section class="side job" aria-label="The chosen job">
      <h2>
        {job.job} {step?.stage && <Stage job={{ stage: step.stage }} />}
      </h2>
      {step && (
        <p class="faint">
          Queue {step.queue}, priority {priority(step)}
          {step.gpus > 0 && `, ${amount(step.gpus)} GPUs`}
        </p>
      )}
      {!step ? (
        <p>It wasn't there yet.</p>
      ) : !step.stage ? (
        <p>It was deleted.</p>
      ) : (
        <>
          <p class="faint">
            As of event {count(told?.offset ?? step.at)}, {ago(told?.timeMs ?? step.timeMs)} ago
            {(told?.offset ?? step.at) === step.at && ", when it changed last"}:
          </p>
          <p class="lead reason">
            {log.waits(step) && <strong>Waits for {step.waitingFor}. </strong>}
            {told?.waiting?.why ?? step.message}
          </p>
          {told && (
            <>
              {told.waiting && <Waiting waiting={told.waiting} value={told} />}
              <Happened value={told} />
              <h4>Where it stands</h4>
              <dl class="pairs">
                <Standing value={told} now={told.timeMs} />
              </dl>
            </>
          )}
          <p class="faint shell">
            The same from the log: <code>{`arranger explain ${job.job} --at ${told?.offset ?? step.at} --log LOG`}</code>
          </p>
        </>
      )}
    </section>
  );
}

const ago = (timeMs: number): string => duration((now.value - timeMs) / 1000);

const ROWS = 30;

function Story() {
  const up = log.happened(now.value);
  const rows = log.happenings.slice(Math.max(0, up - ROWS), up).reverse();
  return (
    <section aria-label="What happened">
      <h3>What happened, the newest first</h3>
      {!rows.length && <p class="faint">Nothing yet.</p>}
      <ol class="story" tabIndex={0} aria-label="Events up to this moment">
        {rows.map((one) => (
          <li key={one.at}>
            <span class="when">
              {clock(one.timeMs / 1000)} <Point at={one.at} />
            </span>
            <span>
              <Subject of={one} /> <span class="kind">{kindOf(one.kind)}</span> {one.words}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Subject({ of }: { of: Happening }) {
  const [job] = of.jobs;
  return job ? <JobLink job={job} /> : <strong>{of.subject}</strong>;
}

function Page() {
  return (
    <>
      <header>
        <Top />
        <Time />
      </header>
      <main class="replay">
        <div class="bars-part">
          <p class="intro">
            This page plays {duration((log.lastMs - log.firstMs) / 1000)} of a scheduler's log. Press Play, drag the line of time,
            or choose a job to read why it waits.
          </p>
          {astray.value && <Note>{astray.value}</Note>}
          <Figures />
          <Gantt steady />
        </div>
        <div class="job-part">
          <Queue />
          <Job />
        </div>
        <div class="story-part">
          <Story />
          <p class="faint">
            Made by arranger export --html, version {version}. Keys: Space plays, n and p go to decisions, the arrow keys, Home
            and End move, + and - change the speed, 0 shows all of the time. The wheel zooms the line of time.
          </p>
        </div>
      </main>
    </>
  );
}

/** The moment and the job that the address names, as in the console: #/gantt?at=120&job=default/train. */
function readAddress(): void {
  const [name = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const asked = given.get("at") ?? "";
  const offset = asked === "end" ? playback.last : Number(/^(\d{1,15})(?:@\d{1,15})?$/.exec(asked)?.[1] ?? 0);
  if (offset) seek(log.timeOf(offset));
  astray.value = [
    name && name !== "gantt" && `There is no view named ${name} in a replay: this is all of it.`,
    asked && !offset && `There is no event ${asked}: this is another moment.`,
    offset > playback.last && `The replay ends with event ${count(playback.last)}: this is its end.`,
    offset && offset < playback.first && `The replay begins with event ${count(playback.first)}: this is its beginning.`,
  ].filter(Boolean).join(" ");
  const job = given.get("job") ?? "";
  if (job) chosen.value = job;
  readOthers(given, "gantt");
}

playback.gantt.jobs.sort((one, other) => (one.bars[0]?.from ?? 0) - (other.bars[0]?.from ?? 0));
embedded.set("gantt", playback.gantt);
embedded.set("node-gantt", playback.nodes);
timeline.value = playback.timeline;
view.value = "gantt";
// The charts draw what comes after this moment pale.
effect(() => {
  moment.value = {
    at: shownAt.value, time: now.value / 1000, totals: {}, jobs: [], nodes: [], topologyLevels: [], queues: [],
  };
});
// A link to an event moves the page there.
effect(() => {
  if (!at.value) return;
  const offset = at.value;
  batch(() => {
    at.value = 0;
    playing.value = false;
    seek(log.timeOf(offset));
  });
});
const first = log.telling();
if (first) {
  chosen.value = first.job;
  seek(first.timeMs);
} else {
  chosen.value = log.jobs[0]?.job ?? "";
}
readAddress();
addEventListener("hashchange", readAddress);
// Of many jobs, those are in sight that came last, or the chosen one.
effect(() => {
  const { jobs } = playback.gantt;
  const came = lastUpTo(jobs, now.value / 1000, (one) => one.bars[0]?.from ?? 0);
  inSight.value = (playing.value && jobs[came]?.job) || chosen.value;
});
effect(() => {
  if (!playing.value) {
    const words = new URLSearchParams({ at: String(shownAt.value), ...(chosen.value && { job: chosen.value }) });
    addOthers(words, "gantt");
    history.replaceState(null, "", `#/gantt?${words}`);
  }
});
applyScheme(scheme.peek());
render(<Page />, document.getElementById("app")!);
