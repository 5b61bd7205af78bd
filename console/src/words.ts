// How times, durations, names and colours look.
import { computed } from "@preact/signals";
import { masked, moment } from "./store";
import { seenJobs, seenNodes } from "./seen";

const two = (value: number): string => String(value).padStart(2, "0");

/** A time in the reader's time zone, from seconds since the epoch. */
export function clock(seconds: number): string {
  const day = new Date(seconds * 1000);
  return `${two(day.getHours())}:${two(day.getMinutes())}:${two(day.getSeconds())}`;
}

/** The reader's time zone at that time, as UTC+02:00. */
export function zone(seconds: number): string {
  const minutes = -new Date(seconds * 1000).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

export function stamp(seconds: number): string {
  const day = new Date(seconds * 1000);
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())} ${clock(seconds)}`;
}

const DAY_S = 86_400;

/** A time below a chart of so many seconds: as much of it as tells one tick from the next. */
export function tick(seconds: number, span: number): string {
  if (span > 300 * DAY_S) return stamp(seconds).slice(0, 10);
  if (span > DAY_S) return stamp(seconds).slice(5, 16);
  return span < 10 ? clock(seconds) + (seconds % 1).toFixed(2).slice(1) : clock(seconds);
}

const STEPS_S = [
  ...[0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200],
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((days) => days * DAY_S),
];

/** Round times within a span of time, in the reader's time zone: as many as `most`. */
export function ticks(begin: number, end: number, most: number): number[] {
  const step = STEPS_S.find((one) => (end - begin) / one <= most) ?? end - begin;
  const zone = new Date(begin * 1000).getTimezoneOffset() * 60;
  const found: number[] = [];
  for (let time = Math.ceil((begin - zone) / step) * step + zone; time < end; time += step) found.push(time);
  return found;
}

export function duration(seconds: number): string {
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

/** The same in few letters, for tables: `45 s`, `37 min`, `5.2 h`, `3.1 d`. */
export function spell(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 5400) return `${Math.round(whole / 60)} min`;
  if (whole < 2 * 86400) return `${(whole / 3600).toFixed(1)} h`;
  return `${(whole / 86400).toFixed(1)} d`;
}

export const count = (value: number): string => value.toLocaleString("en");
/** An amount of GPUs; parts of one have two digits. */
export const amount = (value: number | null | undefined): string =>
  value == null ? "–" : Number.isInteger(value) ? count(value) : value.toFixed(2);

const BYTES: [string, number][] = [
  ["Ti", 2 ** 40],
  ["Gi", 2 ** 30],
  ["Mi", 2 ** 20],
  ["Ki", 2 ** 10],
];

/** GPU hours from GPU-milliseconds. */
export const hours = (gpuMs: number): string => {
  const value = gpuMs / 3_600_000;
  return !value ? "0" : value >= 10 ? count(Math.round(value)) : value.toFixed(value < 0.1 ? 3 : 2);
};

/** An amount of a resource as the commands show it, from thousandths of a processor, bytes, or a count. */
export function quantity(resource: string, value: number): string {
  if (resource === "cpu") return value % 1000 && value < 10_000 ? `${value}m` : String(value / 1000);
  if (!/^(memory$|ephemeral-storage$|hugepages-)/.test(resource)) return count(value);
  const [suffix, size] = BYTES.find(([, bytes]) => value >= bytes) ?? ["", 1];
  return (value / size).toFixed(1).replace(/\.0$/, "") + suffix;
}

/** Amounts by resource, such as `12 cpu, 24Gi memory`. */
export const amounts = (of: readonly [string, number][]): string =>
  of.map(([resource, value]) => `${quantity(resource, value)} ${resource}`).join(", ");

/** `1 job`, `2 jobs` */
export const many = (value: number, word: string): string => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/** How many pods of a job run, how many of them are ready unless all are, and how many failed: `7 running, 5 ready, 1
 * failed`; empty if none does. */
export function podsNow(of: { podsRunning?: number; podsReady?: number; podsFailed?: number }): string {
  const { podsRunning = 0, podsReady = podsRunning, podsFailed = 0 } = of;
  const running = podsRunning ? `${count(podsRunning)} running${podsReady < podsRunning ? `, ${count(podsReady)} ready` : ""}` : "";
  const failed = podsFailed ? `${count(podsFailed)} failed` : "";
  return [running, failed].filter(Boolean).join(", ");
}

/** `Insufficient` → `insufficient`, `nodeLost` → `node lost` */
export const plain = (word: string): string => word.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

/** The kind of an event beside the job that it is about: who took room from others wasn't preempted itself, and workers
 * that ended are replaced or given up, which the event's text says. */
export const kindOf = (kind: string): string =>
  kind === "Preempted" ? "took room" : kind === "WorkersReplaced" ? "workers ended" : plain(kind);

/** What a bar is drawn as, beside its colour: thick, as two lines, or as one. */
export type Shape = "thick" | "double" | "single";
export const SHAPES: readonly Shape[] = ["thick", "double", "single"];

// Colours for any other name: as different as so many can be, and unlike both the light and the dark ground. Those of one
// lightness stand between those of the next.
const HUES = 12;
const LIGHTNESSES = [0.44, 0.56, 0.68, 0.79];

function hashed(name: string): string {
  const number = hash(name) % (HUES * LIGHTNESSES.length);
  const tone = Math.floor(number / HUES);
  return oklch(LIGHTNESSES[tone]!, 0.17, ((number % HUES) + (tone % 2) / 2) * (360 / HUES));
}

/** A colour of Oklab, with less chroma where the screen hasn't so much, as `rgb(…)`, which every program that draws a
 * saved picture knows. The numbers are those of Oklab's definition, by Björn Ottosson. */
function oklch(lightness: number, chroma: number, angle: number): string {
  const [a, b] = [Math.cos((angle * Math.PI) / 180) * chroma, Math.sin((angle * Math.PI) / 180) * chroma];
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * middle + 1.707614701 * short,
  ];
  if (chroma > 0 && linear.some((one) => one < 0 || one > 1)) return oklch(lightness, chroma - 0.005, angle);
  const parts = linear.map((one) => Math.round(255 * (one <= 0.0031308 ? 12.92 * one : 1.055 * one ** (1 / 2.4) - 0.055)));
  return `rgb(${parts.join(", ")})`;
}

/** A number that follows from a text alone: FNV-1a with 32 bits, its bits mixed once more. */
function hash(text: string): number {
  let found = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) found = Math.imul(found ^ byte, 0x01000193);
  found = Math.imul(found ^ (found >>> 16), 0x85ebca6b);
  return (found ^ (found >>> 13)) >>> 0;
}

/** A colour that follows from the name: in every view, by every path and in every page it is the same. */
class Palette {
  readonly #known = new Map<string, string>();
  of(name: string): string {
    let colour = this.#known.get(name);
    if (colour === undefined) this.#known.set(name, (colour = hashed(name)));
    return colour;
  }
}
export const jobColours = new Palette();
export const queueColours = new Palette();

/** What jobs wait for, in the words of `arranger waits`. */
const CAUSES: Record<string, string> = {
  Room: "room that others held",
  Guarantees: "guarantees of other queues",
  Capability: "capability of a queue",
  Order: "room that others held",
  Reservation: "room that is reserved for a job before it",
  PreemptedRoom: "others to leave its nodes",
  EarlierPods: "pods of its earlier attempt",
  Scheduler: "a scheduling cycle or a controller",
  Quota: "ResourceQuota",
  ClosedNodes: "cordoned or not ready nodes",
  Taint: "taints of nodes",
  Rules: "other rules of nodes and pods",
  MaxRunning: "maxRunning of a queue",
  MaxWaiting: "maxWaiting of a queue",
  NonPreemptible: "nonPreemptible of a queue",
  Plugin: "a plugin's group check or permit",
  Queue: "a queue that it can't use",
  Infeasible: "no cluster of these nodes has room",
  Dependency: "jobs that it starts after",
  PriorityClass: "its PriorityClass",
  RuntimeClass: "its RuntimeClass",
  BackOff: "back-off",
  Suspended: "its user to resume it",
  Pods: "scheduling gates, claims or further pods of its group",
};

// The first six are Okabe and Ito's, without black and yellow: people with a colour vision deficiency tell them apart. Each
// is there in every shape, so that no two causes look alike, and the most frequent ones differ in colour.
const CAUSE_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a63c7", "#7f7f7f"];

/** How a bar of a cause is drawn: its colour and its shape. Another cause than those has a colour that follows from its name. */
export function causeLook(cause: string): [colour: string, shape: Shape] {
  const number = Object.keys(CAUSES).indexOf(cause);
  const colours = CAUSE_COLOURS.length;
  return number < 0 ? [hashed(cause), "thick"] : [CAUSE_COLOURS[number % colours]!, SHAPES[Math.floor(number / colours)]!];
}

export const awaited = (cause: string): string => CAUSES[cause] ?? plain(cause);

/** Words with pseudonyms for all names that the page has met. */
const replacing = computed(() => {
  const names = new Map<string, string>();
  const now = moment.value;
  const give = (name: string, kind: string): void => {
    if (name && !names.has(name)) names.set(name, `${kind}-${names.size + 1}`);
  };
  for (const job of [...(now?.jobs ?? []).map((one) => one.job), ...seenJobs.value]) {
    const [namespace = "", name = ""] = job.split("/");
    give(namespace, "namespace");
    give(name, "job");
  }
  for (const node of now?.nodes ?? []) {
    give(node.name, "node");
    for (const domain of node.topology) give(domain, "domain");
  }
  for (const node of seenNodes.value) give(node, "node");
  for (const queue of now?.queues ?? []) give(queue.name, "queue");
  if (!names.size) return (text: string) => text;
  const longestFirst = [...names.keys()].sort((one, other) => other.length - one.length);
  const pattern = longestFirst.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  const found = new RegExp(`(?<![\\w.-])(?:${pattern})(?!\\w)`, "g");
  return (text: string) => text.replace(found, (name) => names.get(name) ?? name);
});

/** Addresses of pods, and the process that an event says to watch. */
const ADDRESS = /\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}\b/gi;
const PROCESS = /^\S+ watches\b.*$/;

/** What is shown of a user's name, which stands in no list. */
export const person = (name: string): string => (masked.value ? "a user" : name);

/** What is shown of text with names in it: the text itself, or with pseudonyms. */
export const shown = (text: string): string =>
  masked.value ? replacing.value(text).replace(ADDRESS, "an address").replace(PROCESS, "a process watches") : text;
