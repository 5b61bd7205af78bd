// The line of time: what is drawn along it, the point that is shown, and the part that it is zoomed to.
import { useEffect, useRef } from "preact/hooks";
import { colour, dark, prepared, useWidth } from "./use";
import { onWheel, part, showAll, whole, zoom, zoomBy } from "./zoom";

/** Draws along the line: `x` is the place of a time in pixels. */
export type Draw = (pen: CanvasRenderingContext2D, x: (time: number) => number, width: number) => void;

const STRIP_PX = 3;

export function Slider(props: {
  label: string;
  height: number;
  /** The time that is shown, in seconds. */
  time: number;
  /** The least, the greatest and the present value, and the present one in words, for whoever hears them. */
  values: readonly [number, number, number];
  text: string;
  draw: Draw;
  /** What the drawing depends on. */
  of: readonly unknown[];
  onTime: (time: number) => void;
  /** What is told about a time, `reach` seconds around it. */
  about?: (time: number, reach: number) => string;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [from, to] = part.value;
  const [begin, end] = whole.value;
  useEffect(() => {
    if (!canvas.current || !width) return;
    const pen = prepared(canvas.current, width, props.height);
    const x = (time: number): number => ((time - from) / (to - from)) * (width - 2) + 1;
    props.draw(pen, x, width);
    if (from <= begin && end <= to) return;
    // Where the part is within all of the time.
    const place = (time: number): number => ((time - begin) / (end - begin)) * width;
    pen.fillStyle = colour("--line");
    pen.fillRect(0, props.height - STRIP_PX, width, STRIP_PX);
    pen.fillStyle = colour("--accent");
    pen.fillRect(place(from), props.height - STRIP_PX, Math.max(3, place(to) - place(from)), STRIP_PX);
  }, [width, dark.value, from, to, begin, end, ...props.of]);
  const timeAt = (event: MouseEvent): number => {
    const edge = box.current!.getBoundingClientRect();
    return from + Math.max(0, Math.min(1, (event.clientX - edge.left) / edge.width)) * (to - from);
  };
  const drag = (event: PointerEvent): void => {
    if (event.buttons & 1) props.onTime(timeAt(event));
    else if (box.current && props.about) box.current.title = props.about(timeAt(event), ((to - from) / (width || 1)) * 5);
  };
  const share = (props.time - from) / (to - from);
  const [least, most, value] = props.values;
  return (
    <div
      class="slider"
      ref={box}
      role="slider"
      tabIndex={0}
      aria-label={props.label}
      aria-valuemin={least}
      aria-valuemax={most}
      aria-valuenow={value}
      aria-valuetext={props.text}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        drag(event);
      }}
      onPointerMove={drag}
      onWheel={(event) => onWheel(event, timeAt(event))}
    >
      <canvas ref={canvas} aria-hidden="true" />
      {share >= 0 && share <= 1 && <span class="needle" style={{ left: `${share * 100}%` }} />}
    </div>
  );
}

/** Buttons that zoom, for whoever has neither a wheel nor keys. */
export function Zooming() {
  return (
    <span class="zooming">
      <button type="button" aria-label="Zoom out" title="show more of the time (-, or the wheel)" disabled={!zoom.value} onClick={() => zoomBy(2)}>
        −
      </button>
      <button type="button" aria-label="Zoom in" title="show less of the time (+, or the wheel)" onClick={() => zoomBy(0.5)}>
        +
      </button>
      {zoom.value && (
        <button type="button" title="show all of the time (0)" onClick={showAll}>
          All
        </button>
      )}
    </span>
  );
}
