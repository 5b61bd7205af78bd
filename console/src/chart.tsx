// Lines over time, drawn by uPlot in the page's colours; a click goes to that point in time.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { SaveSvg } from "./parts";
import { masked } from "./store";
import type { Pen } from "./svg";
import { onWheel, type Span } from "./zoom";
import { colour, dark, useWidth } from "./use";
import { amount, stamp, tick } from "./words";

export interface Drawn {
  name: string;
  values: readonly (number | null)[];
  /** A colour, or the name of one of the style sheet. */
  colour: string;
  dashed?: boolean;
  fill?: boolean;
  /** What is told instead of the values, where they are sums with those of other lines. */
  own?: readonly (number | null)[];
}

/** Lines that stand on each other, the first one lowest. The highest is drawn first, and comes first in the legend. */
export function stacked(lines: readonly Drawn[]): Drawn[] {
  let below: readonly (number | null)[] = [];
  const found = lines.map((line): Drawn => {
    below = line.values.map((value, place) => (value ?? 0) + (below[place] ?? 0));
    return { ...line, values: below, own: line.values };
  });
  return found.reverse();
}

interface Shown {
  label: string;
  times: readonly number[];
  /** The part of the time that is shown, in seconds. Without it: all times. */
  span?: Span;
  lines: readonly Drawn[];
  height?: number;
  mark?: number | undefined;
  /** Which of the values are valid at the mark, where several are of the same time. Without it: the last ones. */
  atMark?: number | undefined;
  onTime?: (time: number) => void;
}
const HEIGHT_PX = 240;

/** How much room the values at an axis need, in pixels. */
const high = (_: uPlot, values: string[] | null): number =>
  Math.max(44, 16 + 7 * Math.max(0, ...(values ?? []).map((one) => String(one).length)));

export function Chart(props: Shown) {
  const [box, width] = useWidth<HTMLDivElement>();
  const plotted = useRef<uPlot | null>(null);
  // Where the pointer is: a chart that is drawn again under it goes on telling the values there.
  const pointed = useRef({ left: -10, top: -10 });
  const shown = useRef(props);
  shown.current = props;
  const unmarked = useRef<HTMLCanvasElement | null>(null);
  const of = spanOf(props);
  const span = useRef(of);
  span.current = of;
  const key = useMemo(() => ({}), [props.times, props.lines.map((one) => one.name).join("\n"), masked.value]);
  useEffect(() => {
    if (!box.current || !width) return;
    const plot = new uPlot(options(props, width, span), [props.times as number[], ...props.lines.map((one) => one.values as number[])], box.current);
    const onClick = (): void => {
      const { left } = plot.cursor;
      if (left !== undefined && left >= 0) props.onTime?.(plot.posToVal(left, "x"));
    };
    plot.over.addEventListener("click", onClick);
    plot.over.addEventListener("wheel", (event) => {
      // Without a key, the wheel moves the page.
      if (event.ctrlKey || event.shiftKey) onWheel(event, plot.posToVal(event.offsetX, "x"));
    });
    unmarked.current = null;
    (plot.hooks.draw ??= []).push(() => {
      unmarked.current = copyOf(plot.ctx.canvas);
      drawMark(plot, shown.current.mark);
    });
    (plot.hooks.ready ??= []).push(() => plot.setCursor(pointed.current));
    (plot.hooks.setLegend ??= []).push(() => tell(plot, shown.current));
    tell(plot, shown.current);
    plotted.current = plot;
    return () => {
      plotted.current = null;
      pointed.current = { left: plot.cursor.left ?? -10, top: plot.cursor.top ?? -10 };
      plot.destroy();
    };
  }, [key, width, dark.value]);
  // A move in time changes nothing but the mark: the lines, with thousands of points, aren't drawn again.
  useEffect(() => {
    const plot = plotted.current;
    if (!plot || !unmarked.current) return;
    plot.ctx.save();
    plot.ctx.globalCompositeOperation = "copy";
    plot.ctx.drawImage(unmarked.current, 0, 0);
    plot.ctx.restore();
    drawMark(plot, props.mark);
    tell(plot, props);
  }, [props.mark, props.atMark]);
  useEffect(() => plotted.current?.setScale("x", { min: of[0], max: of[1] }), [...of]);
  return (
    <div class="framed">
      <SaveSvg
        of={() => ({
          title: props.label,
          legend: () => props.lines.map((one) => [one.name, tone(one.colour)]),
          width,
          height: props.height ?? HEIGHT_PX,
          draw: (pen) => draw(pen, props, width),
        })}
      />
      <div class="chart" ref={box} role="img" aria-label={props.label} />
    </div>
  );
}

const spanOf = ({ span, times }: Shown): Span => span ?? [times[0] ?? 0, times.at(-1) ?? 1];
const tone = (given: string): string => (given.startsWith("--") ? colour(given) : given);

// Steps of the axis: there are no parts of jobs, and GPUs are counted whole.
const WHOLE = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5].map((power) => one * 10 ** power)).sort((a, b) => a - b);

function options(props: Shown, width: number, span: { current: Span }): uPlot.Options {
  const times = (_: uPlot, splits: number[]): string[] => splits.map((time) => tick(time, span.current[1] - span.current[0]));
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: props.height ?? HEIGHT_PX,
    scales: { x: { time: true, range: () => [...span.current] }, y: { range: (_, _low, high) => [0, Math.max(1, high * 1.05)] } },
    axes: [
      { ...axis, values: times, space: 90, size: 28 },
      { ...axis, size: high, incrs: WHOLE },
    ],
    cursor: { points: { size: 6 }, drag: { x: false, y: false }, dataIdx: (plot, _line, nearest, time) => valid(plot, nearest, time) },
    legend: { live: width > 500 },
    series: [
      { label: "Time", value: (_: uPlot, time: number | null) => (time == null ? "–" : stamp(time)) },
      ...props.lines.map((one) => ({
        label: one.name,
        stroke: tone(one.colour),
        width: one.own ? 1 : 2,
        ...(one.fill && { fill: `color-mix(in srgb, ${tone(one.colour)} ${one.own ? `70%, ${colour("--ground")}` : "15%, transparent"})` }),
        ...(one.dashed && { dash: [6, 4] }),
        paths: uPlot.paths.stepped!({ align: 1 }),
        points: { show: false },
        value: (_: uPlot, value: number | null, _line: number, place: number | null) =>
          amount(one.own && place !== null ? one.own[place] : value),
      })),
    ],
  };
}

function copyOf(canvas: HTMLCanvasElement): HTMLCanvasElement {
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  copy.getContext("2d")!.drawImage(canvas, 0, 0);
  return copy;
}

/** The place of the values that are valid at a time: the last ones up to it, rather than the nearest. */
function valid(plot: uPlot, from: number, time: number): number {
  const times = plot.data[0];
  let place = from;
  while (place > 0 && times[place]! > time) place--;
  while (place < times.length - 1 && times[place + 1]! <= time) place++;
  return place;
}

/** While nothing is pointed at, the legend has the values at the mark. */
function tell(plot: uPlot, { mark, atMark }: Shown): void {
  if (mark === undefined || plot.cursor.idx != null) return;
  plot.setLegend({ idx: atMark ?? valid(plot, plot.data[0].length - 1, mark) }, false);
}

function drawMark(plot: uPlot, time: number | undefined): void {
  if (time === undefined) return;
  const x = plot.valToPos(time, "x", true);
  if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) return;
  plot.ctx.save();
  plot.ctx.fillStyle = colour("--accent");
  plot.ctx.fillRect(x - 1, plot.bbox.top, 2, plot.bbox.height);
  plot.ctx.restore();
}

const AXIS_PX = { left: 44, bottom: 22, step: 110 };

/** The same lines without uPlot, which draws on a canvas alone. */
function draw(pen: Pen, props: Shown, width: number): void {
  const { times, lines, mark } = props;
  const [begin, end] = spanOf(props);
  const right = width - AXIS_PX.left;
  const bottom = (props.height ?? HEIGHT_PX) - AXIS_PX.bottom;
  const most = Math.max(1, ...lines.flatMap((one) => one.values.map((value) => (value ?? 0) * 1.05)));
  const x = (time: number): number => AXIS_PX.left + ((time - begin) / (end - begin || 1)) * right;
  const y = (value: number): number => bottom * (1 - value / most);
  pen.strokeStyle = colour("--line");
  pen.fillStyle = colour("--faint");
  const step = WHOLE.find((one) => most / one <= 6) ?? most;
  for (let value = 0; value <= most; value += step) {
    path(pen, [[AXIS_PX.left, y(value)], [width, y(value)]]);
    pen.stroke();
    pen.fillText(amount(value), 4, y(value));
  }
  for (let at = 0; at < right - AXIS_PX.step / 2; at += AXIS_PX.step) {
    pen.fillText(tick(begin + (at / right) * (end - begin), end - begin), AXIS_PX.left + at, bottom + AXIS_PX.bottom / 2);
  }
  pen.lineWidth = 2;
  // What is before the part is drawn at its beginning.
  for (const one of lines) course(pen, one, times.map((time) => x(Math.max(begin, Math.min(time, end)))), y);
  if (mark === undefined || mark < begin || mark > end) return;
  pen.strokeStyle = colour("--accent");
  path(pen, [[x(mark), 0], [x(mark), bottom]]);
  pen.stroke();
}

/** A line in steps, and the area below it; it ends with its last value. */
function course(pen: Pen, line: Drawn, across: readonly number[], y: (value: number) => number): void {
  const points: [number, number][] = [];
  line.values.forEach((value, place) => {
    const before = points.at(-1);
    if (value === null) return;
    if (before) points.push([across[place]!, before[1]]);
    points.push([across[place]!, y(value)]);
  });
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return;
  pen.fillStyle = pen.strokeStyle = tone(line.colour);
  if (line.fill) {
    pen.globalAlpha = line.own ? 0.7 : 0.15;
    path(pen, [[first[0], y(0)], ...points, [last[0], y(0)]]);
    pen.fill();
    pen.globalAlpha = 1;
  }
  pen.setLineDash(line.dashed ? [6, 4] : []);
  path(pen, points);
  pen.stroke();
  pen.setLineDash([]);
}

function path(pen: Pen, points: readonly (readonly [number, number])[]): void {
  pen.beginPath();
  points.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
}
