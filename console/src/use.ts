// Hooks: an answer to a question, a canvas that keeps its size, and the colours of the scheme.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, passes, type Parameters } from "./api";
import { live, words } from "./store";

export interface Answer<T> {
  value: T | null;
  problem: string;
  busy: boolean;
  /** What `value` was asked with. */
  of: Parameters;
}

/** A question that is asked about one point after another. */
interface Following {
  about: (given: Parameters) => void;
  end: () => void;
}

const NONE: Answer<never> = { value: null, problem: "", busy: true, of: {} };
/** The parameters that are points of the log. */
const POINTS = ["at", "from", "to", "log", "sinceMs", "untilMs"];
/** Whoever moves through time asks for a point only when he stays there. */
const SETTLED_MS = 120;
/** When a question is asked again whose answer isn't about all of the log yet, and one that wasn't answered. */
const AGAIN_MS = 1000;
const RETRY_MS = 2000;

/** The answer to a question, asked again when it changes; `question` empty: not asked. The earlier answer stays until the
 * next one is there. A log that is followed may grow faster than answers come: then each is waited for, shown with its
 * point, and the next one is about the newest point. `log` is never sent: it is given where the answer is about all of
 * the log, so that it is asked again when the log has grown. */
export function useAnswer<T>(question: string, given: Parameters): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>(NONE);
  const following = useRef<Following | null>(null);
  const subject = question && JSON.stringify([question, { ...given, ...Object.fromEntries(POINTS.map((one) => [one, ""])) }]);
  useEffect(() => {
    if (!question) return setAnswer({ ...NONE, busy: false });
    const of = (following.current = follow<T>(question, setAnswer));
    return () => {
      following.current = null;
      of.end();
    };
  }, [subject]);
  useEffect(() => following.current?.about(given), [question && JSON.stringify([question, given])]);
  return answer;
}

function follow<T>(question: string, tell: (next: (earlier: Answer<T>) => Answer<T>) => void): Following {
  let wanted: Parameters | null = null;
  let asking: AbortController | null = null;
  let timer = 0;
  let ended = false;
  const soon = (delayMs: number): void => {
    timer = window.setTimeout(() => void begin(), delayMs);
  };
  const begin = async (): Promise<void> => {
    const [given, began] = [wanted!, performance.now()];
    const mine = (asking = new AbortController());
    [wanted, timer] = [null, 0];
    let pauseMs = SETTLED_MS;
    try {
      const value = await ask<T>(question, { ...given, log: undefined }, mine);
      // The server still reads the log: the rest follows.
      const whole = (value as { complete?: boolean }).complete !== false;
      pauseMs = whole ? Math.max(pauseMs, performance.now() - began) : AGAIN_MS;
      if (!whole) wanted ??= given;
      tell(() => ({ value, problem: "", busy: wanted !== null, of: given }));
    } catch (caught) {
      if (!mine.signal.aborted && passes(caught)) {
        wanted ??= given;
        pauseMs = RETRY_MS;
        tell((earlier) => ({ ...earlier, problem: words(caught), busy: true }));
      } else if (!mine.signal.aborted) {
        tell(() => ({ value: null, problem: words(caught), busy: wanted !== null, of: given }));
      }
    }
    asking = null;
    if (wanted && !ended) soon(pauseMs);
  };
  return {
    about: (given) => {
      wanted = given;
      tell((earlier) => ({ ...earlier, busy: true }));
      if (asking && !live.peek()) asking.abort();
      if (asking || (timer && live.peek())) return;
      clearTimeout(timer);
      soon(SETTLED_MS);
    },
    end: () => {
      ended = true;
      clearTimeout(timer);
      asking?.abort();
    },
  };
}

/** Gives a controller for a question that is asked by hand: it ends with the part of the page, or with the next one. */
export function useAsking(): () => AbortController {
  const last = useRef<AbortController | null>(null);
  useEffect(() => () => last.current?.abort(), []);
  return () => {
    last.current?.abort();
    return (last.current = new AbortController());
  };
}

/** The width of an element in CSS pixels, kept up to date. */
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watcher.observe(element.current);
    return () => watcher.disconnect();
  }, []);
  return [element, width];
}

/** A canvas of a size in CSS pixels, cleared, sharp on any screen. */
export function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d")!;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** Whether the screen is that of a phone. The style sheet has the same width. */
export const narrow = signal(false);
const phone = matchMedia("(max-width: 760px)");
narrow.value = phone.matches;
phone.addEventListener("change", () => (narrow.value = phone.matches));

/** The scheme: what the reader chose, else what the system says. */
export const scheme = signal(localStorage.getItem("scheme") ?? "");
const system = matchMedia("(prefers-color-scheme: dark)");
/** Changes with each change of colours, so that a canvas is drawn again. */
export const dark = signal(false);

export function applyScheme(next = scheme.peek()): void {
  scheme.value = next;
  if (next) localStorage.setItem("scheme", next);
  dark.value = next ? next === "dark" : system.matches;
  document.documentElement.dataset.scheme = dark.value ? "dark" : "light";
}
system.addEventListener("change", () => applyScheme());

/** A colour of the style sheet, such as `--line`. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
