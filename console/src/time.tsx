// Time, on top of everything: the log's events over time, its marks, and the point that all views show.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { lost } from "./api";
import { at, batchEnd, goTo, live, moment, shownAt, step, timeline, unread } from "./store";
import type { Timeline } from "./types";
import { colour, dark, prepared, useWidth } from "./use";
import { clock, count, many, plain, shown, stamp, zone } from "./words";

const HEIGHT_PX = 54;
export const helpShown = signal(false);

/** Time by offset and offset by time, between the ends of the buckets. */
function scale(log: Timeline): { offsets: number[]; times: number[] } {
  const offsets = [log.first];
  const times = [log.firstTime];
  for (const one of log.buckets) {
    if (one.at > (offsets.at(-1) ?? 0)) {
      offsets.push(one.at);
      times.push(Math.max(one.time, times.at(-1) ?? 0));
    }
  }
  if ((offsets.at(-1) ?? 0) < log.last) {
    offsets.push(log.last);
    times.push(Math.max(log.lastTime, times.at(-1) ?? 0));
  }
  return { offsets, times };
}

function between(from: number[], to: number[], value: number): number {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle]! <= value) low = middle;
    else high = middle;
  }
  const [one, other] = [from[low]!, from[high]!];
  const share = other > one ? Math.max(0, Math.min(1, (value - one) / (other - one))) : 0;
  return to[low]! + share * (to[high]! - to[low]!);
}

export function timeOf(log: Timeline, offset: number): number {
  const { offsets, times } = scale(log);
  return between(offsets, times, offset);
}
export function offsetAt(log: Timeline, time: number): number {
  const { offsets, times } = scale(log);
  return Math.round(between(times, offsets, time));
}

function draw(canvas: HTMLCanvasElement, log: Timeline, width: number): void {
  const pen = prepared(canvas, width, HEIGHT_PX);
  const span = Math.max(log.lastTime - log.firstTime, 1e-9);
  const x = (time: number): number => ((time - log.firstTime) / span) * (width - 2) + 1;
  const most = Math.max(1, ...log.buckets.map((one) => one.events));
  pen.fillStyle = colour("--density");
  const bar = Math.max(1, width / Math.max(log.buckets.length, 1));
  for (const one of log.buckets) {
    if (!one.events) continue;
    // The square root keeps quiet times visible beside the busiest.
    const height = Math.max(2, Math.sqrt(one.events / most) * (HEIGHT_PX - 14));
    pen.fillRect(x(one.time) - bar, HEIGHT_PX - height, Math.max(1, bar - 0.5), height);
  }
  for (const mark of log.marks) {
    pen.fillStyle = pen.strokeStyle = colour(`--mark-${mark.kind}`);
    const middle = x(mark.time);
    pen.beginPath();
    if (mark.kind === "nodeLost") pen.rect(middle - 3, 1, 6, 6);
    else if (mark.kind === "nodeCordoned") pen.strokeRect(middle - 3, 1, 6, 6);
    else if (mark.kind === "preempted") pen.arc(middle, 4, 3.5, 0, 7);
    else if (mark.kind === "jobRescheduled") path(pen, [middle - 4, 4], [middle, 0], [middle + 4, 4], [middle, 8]);
    else path(pen, [middle - 4, 8], [middle, 0], [middle + 4, 8]);
    pen.fill();
  }
}

function path(pen: CanvasRenderingContext2D, ...points: [number, number][]): void {
  for (const [x, y] of points) pen.lineTo(x, y);
}

/** What the mark nearest to a time says, if one is within `reach` seconds. */
function markAt(log: Timeline, time: number, reach: number): string {
  const near = log.marks.filter((one) => Math.abs(one.time - time) <= reach);
  near.sort((one, other) => Math.abs(one.time - time) - Math.abs(other.time - time));
  const [first] = near;
  const names = (first?.subjects ?? []).slice(0, 3).map(shown).join(", ");
  return first ? `${plain(first.kind)}: ${names} at ${clock(first.time)}, event ${count(first.at)}` : "";
}

export function Time() {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const log = timeline.value;
  useEffect(() => {
    if (canvas.current && log && width) draw(canvas.current, log, width);
  }, [log, width, dark.value]);
  const offset = shownAt.value;
  const time = log ? timeOf(log, offset) : (moment.value?.time ?? 0);
  const share = log ? (time - log.firstTime) / Math.max(log.lastTime - log.firstTime, 1e-9) : 1;
  const drag = (event: PointerEvent): void => {
    if (!log || !box.current) return;
    const edge = box.current.getBoundingClientRect();
    const part = Math.max(0, Math.min(1, (event.clientX - edge.left) / edge.width));
    const [all, there] = [log.lastTime - log.firstTime, log.firstTime + part * (log.lastTime - log.firstTime)];
    if (event.buttons & 1) goTo(offsetAt(log, there));
    else box.current.title = markAt(log, there, (all / edge.width) * 5);
  };
  const kinds = [...new Set(log?.marks.map((one) => one.kind))];
  return (
    <section class="time" aria-label="Time">
      <div
        class="slider"
        ref={box}
        role="slider"
        tabIndex={0}
        aria-label="Point in the log"
        aria-valuemin={log?.first ?? 0}
        aria-valuemax={log?.last ?? 0}
        aria-valuenow={offset}
        aria-valuetext={`event ${offset}, ${stamp(time)}`}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          drag(event);
        }}
        onPointerMove={drag}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <span class="needle" style={{ left: `${Math.max(0, Math.min(1, share)) * 100}%` }} />
      </div>
      <div class="steps">
        <span class="now">
          <strong>{stamp(moment.value?.time ?? time)}</strong>
          <span class="faint">
            {" "}
            event{" "}
            <input
              class="number-of-event"
              inputMode="numeric"
              aria-label="Event"
              title="Type the number of an event to go there"
              size={String(log?.last ?? 0).length}
              value={offset}
              onChange={(event) => {
                const asked = Number(event.currentTarget.value);
                if (Number.isSafeInteger(asked) && asked > 0) goTo(asked);
                event.currentTarget.value = String(shownAt.value);
              }}
            />{" "}
            of {count(log?.last ?? 0)}
            {", "}
            {zone(moment.value?.time ?? time)}
            {!live.value && batchEnd.value > 0 && `, in a batch that ends with event ${count(batchEnd.value)}`}
          </span>
        </span>
        <span class="buttons">
          <button type="button" onClick={() => void step("before")} title="the decision before this point (p)">
            ‹ Decision
          </button>
          <button type="button" onClick={() => void step("after")} title="the decision after this point (n)">
            Decision ›
          </button>
          <button
            type="button"
            aria-pressed={live.value}
            class={live.value ? "on" : ""}
            onClick={toggleLive}
            title="follow the log, or stay at this point (Space)"
          >
            {!live.value ? "Follow the end" : lost.value ? "Retrying · stay" : "Following · stay"}
          </button>
          <span class="unread live-only" role="log" aria-label="New events">
            {unread.value > 0 && many(unread.value, "new event")}
          </span>
        </span>
        <ul class="legend">
          {kinds.map((kind) => (
            <li key={kind}>
              <span class={`mark ${kind}`} />
              {plain(kind)}
            </li>
          ))}
          {log && (
            <li class="faint wide">
              {clock(log.firstTime)} to {clock(log.lastTime)}
            </li>
          )}
        </ul>
      </div>
    </section>
  );
}

function toggleLive(): void {
  if (live.value) goTo(shownAt.value);
  else at.value = 0;
}

const KEYS: Record<string, () => void> = {
  ArrowLeft: () => goTo(shownAt.value - 1),
  ArrowRight: () => goTo(shownAt.value + 1),
  PageUp: () => leap(-1),
  PageDown: () => leap(1),
  Home: () => goTo(timeline.value?.first ?? 1),
  End: () => goTo(timeline.value?.last ?? 1),
  n: () => void step("after"),
  p: () => void step("before"),
  " ": toggleLive,
  "?": () => (helpShown.value = !helpShown.value),
};

function leap(direction: number): void {
  const log = timeline.value;
  if (!log) return;
  const span = (log.lastTime - log.firstTime) / 40;
  const next = offsetAt(log, timeOf(log, shownAt.value) + direction * span);
  goTo(next === shownAt.value ? next + direction : next);
}

/** Keys move through time wherever they mean nothing else. */
export function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target as HTMLElement;
  if (target.closest("input, select, textarea, dialog") && event.key !== "Escape") return;
  const scrolls = target.closest(".rows") && /^(Page|Home|End|Arrow|\s)/.test(event.key);
  const presses = event.key === " " && target.closest("button, summary, a");
  const act = KEYS[event.key];
  if (!act || scrolls || presses) return;
  event.preventDefault();
  act();
}
