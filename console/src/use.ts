// Hooks: an answer to a question, a canvas that keeps its size, and the colours of the scheme.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Parameters } from "./api";
import { words } from "./store";

export interface Answer<T> {
  value: T | null;
  problem: string;
  busy: boolean;
}

/** The answer to a question, asked again when it changes; `question` empty: not asked. The earlier answer stays. */
export function useAnswer<T>(question: string, given: Parameters): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, problem: "", busy: true });
  const key = question && JSON.stringify([question, given]);
  useEffect(() => {
    if (!question) return setAnswer({ value: null, problem: "", busy: false });
    const ended = new AbortController();
    setAnswer((earlier) => ({ ...earlier, busy: true }));
    // Whoever moves through time asks for a point only when he stays there.
    let timer = 0;
    const askSoon = (delayMs: number): void => {
      timer = window.setTimeout(() => {
        ask<T>(question, given, ended).then(
          (value) => {
            setAnswer({ value, problem: "", busy: false });
            // The server still reads the log: the rest follows.
            if ((value as { complete?: boolean }).complete === false && !ended.signal.aborted) askSoon(1000);
          },
          (caught) => ended.signal.aborted || setAnswer({ value: null, problem: words(caught), busy: false }),
        );
      }, delayMs);
    };
    askSoon(120);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [key]);
  return answer;
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
