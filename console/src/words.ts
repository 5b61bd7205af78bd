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

/** An amount of a resource as Kubernetes writes it, from thousandths of a processor, bytes, or a count. */
export function quantity(resource: string, value: number): string {
  if (resource === "cpu") return value % 1000 ? `${value}m` : String(value / 1000);
  if (!/^(memory$|ephemeral-storage$|hugepages-)/.test(resource)) return count(value);
  const [suffix, size] = BYTES.find(([, bytes]) => value >= bytes) ?? ["", 1];
  return (value / size).toFixed(1).replace(/\.0$/, "") + suffix;
}

/** Amounts by resource, such as `12 cpu, 24Gi memory`. */
export const amounts = (of: readonly [string, number][]): string =>
  of.map(([resource, value]) => `${quantity(resource, value)} ${resource}`).join(", ");

/** `1 job`, `2 jobs` */
export const many = (value: number, word: string): string => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/** `Insufficient` → `insufficient`, `nodeLost` → `node lost` */
export const plain = (word: string): string => word.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

// Okabe and Ito's colours, which people with a colour vision deficiency tell apart, without black and yellow: for names
// whose colours are chosen.
const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const SHADES = [0, 0.4, -0.35, 0.2, -0.18, 0.55, -0.5];
const numbered = (number: number): string => mixed(HUES[number % HUES.length]!, SHADES[Math.floor(number / HUES.length) % SHADES.length]!);

// Colours for any other name: as different as so many can be, in lightness too.
const ANGLES = [2, 24, 42, 58, 92, 138, 168, 192, 212, 238, 272, 322];
const TONES = [[30, 62], [44, 66], [59, 56], [77, 62]] as const;

function hashed(name: string): string {
  const number = hash(name) % (ANGLES.length * TONES.length);
  const [lightness, saturation] = TONES[Math.floor(number / ANGLES.length)]!;
  return hsl(ANGLES[number % ANGLES.length]!, saturation / 100, lightness / 100);
}

/** As `rgb(…)`, which every program that draws a saved picture knows. */
function hsl(angle: number, saturation: number, lightness: number): string {
  const part = (of: number): number => {
    const place = (of + angle / 30) % 12;
    const reach = saturation * Math.min(lightness, 1 - lightness);
    return Math.round(255 * (lightness - reach * Math.max(-1, Math.min(place - 3, 9 - place, 1))));
  };
  return `rgb(${part(0)}, ${part(8)}, ${part(4)})`;
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
  /** `first` are names whose colours are chosen, so that all of them differ. */
  constructor(first: readonly string[] = []) {
    first.forEach((name, number) => this.#known.set(name, numbered(number)));
  }
  of(name: string): string {
    let colour = this.#known.get(name);
    if (colour === undefined) {
      colour = hashed(name);
      this.#known.set(name, colour);
    }
    return colour;
  }
}
export const jobColours = new Palette();
export const queueColours = new Palette();

/** What jobs wait for, in the words of `arranger waits`. */
const CAUSES: Record<string, string> = {
  Room: "room that others held",
  Order: "room that others got meanwhile",
  Reservation: "room reserved for a job before it",
  PreemptedRoom: "others to leave its nodes",
  Scheduler: "a scheduling cycle or a controller",
  Quota: "ResourceQuota",
  EarlierPods: "pods of its earlier attempt",
  ClosedNodes: "cordoned or not ready nodes",
  Taint: "taints of nodes",
  Rules: "other rules of nodes and pods",
  Capability: "capability of a queue",
  Guarantees: "guarantees of other queues",
  MaxRunning: "maxRunning of a queue",
  MaxWaiting: "maxWaiting of a queue",
  Plugin: "a plugin's group check or permit",
  Queue: "a queue that it can't use",
  Infeasible: "no cluster of these nodes has room",
  Dependency: "jobs that it starts after",
  PriorityClass: "its PriorityClass",
  RuntimeClass: "its RuntimeClass",
  BackOff: "back-off",
};
export const causeColours = new Palette(Object.keys(CAUSES));

export const awaited = (cause: string): string => CAUSES[cause] ?? plain(cause);

function mixed(colour: string, share: number): string {
  const towards = share > 0 ? 255 : 0;
  const part = (from: number): number => {
    const value = parseInt(colour.slice(from, from + 2), 16);
    return Math.round(value + (towards - value) * Math.abs(share));
  };
  return `rgb(${part(1)}, ${part(3)}, ${part(5)})`;
}

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
