// Lines over time, drawn by uPlot in the page's colours; a click goes to that point in time.
import { useEffect, useMemo } from "preact/hooks";
import uPlot from "uplot";
import { masked } from "./store";
import { colour, dark, useWidth } from "./use";
import { amount, clock, stamp } from "./words";

export interface Drawn {
  name: string;
  values: readonly (number | null)[];
  colour: string;
  dashed?: boolean;
  fill?: boolean;
}

export function Chart(props: {
  label: string;
  times: readonly number[];
  lines: readonly Drawn[];
  height?: number;
  mark?: number | undefined;
  onTime?: (time: number) => void;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  const key = useMemo(() => ({}), [props.times, props.lines.map((one) => one.name).join("\n"), masked.value]);
  useEffect(() => {
    if (!box.current || !width) return;
    const plot = new uPlot(options(props, width), [props.times as number[], ...props.lines.map((one) => one.values as number[])], box.current);
    const onClick = (): void => {
      const { left } = plot.cursor;
      if (left !== undefined && left >= 0) props.onTime?.(plot.posToVal(left, "x"));
    };
    plot.over.addEventListener("click", onClick);
    return () => plot.destroy();
  }, [key, width, dark.value, props.mark]);
  return <div class="chart" ref={box} role="img" aria-label={props.label} />;
}

// Steps of the axis: there are no parts of jobs, and GPUs are counted whole.
const WHOLE = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5].map((power) => one * 10 ** power)).sort((a, b) => a - b);

function options(props: Parameters<typeof Chart>[0], width: number): uPlot.Options {
  const times = (_: uPlot, splits: number[]): string[] => splits.map(clock);
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: props.height ?? 240,
    scales: { x: { time: true }, y: { range: (_, _low, high) => [0, Math.max(1, high * 1.05)] } },
    axes: [
      { ...axis, values: times, space: 80 },
      { ...axis, size: 44, incrs: WHOLE },
    ],
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    legend: { live: width > 500 },
    series: [
      { label: "Time", value: (_: uPlot, time: number | null) => (time == null ? "–" : stamp(time)) },
      ...props.lines.map((one) => ({
        label: one.name,
        stroke: one.colour,
        width: 2,
        ...(one.fill && { fill: `color-mix(in srgb, ${one.colour} 15%, transparent)` }),
        ...(one.dashed && { dash: [6, 4] }),
        paths: uPlot.paths.stepped!({ align: 1 }),
        points: { show: false },
        value: (_: uPlot, value: number | null) => amount(value),
      })),
    ],
    hooks: { draw: [(plot) => drawMark(plot, props.mark)] },
  };
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
