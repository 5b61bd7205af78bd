// Pictures as SVG files: what draws on a canvas draws here too, always in the light colours, with title and legend.
import { moment } from "./store";
import { colour } from "./use";
import { stamp, type Shape } from "./words";

/** What the charts use of a canvas. */
export type Pen = Pick<
  CanvasRenderingContext2D,
  | "fillStyle" | "strokeStyle" | "lineWidth" | "globalAlpha" | "textBaseline" | "font"
  | "fillRect" | "strokeRect" | "fillText" | "measureText" | "setLineDash"
  | "beginPath" | "moveTo" | "lineTo" | "stroke" | "fill"
>;

/** What a legend says: a name, its colour, and how it is drawn, unless it is an area. Nothing is drawn of `transparent`. */
export type Key = readonly [name: string, colour: string, drawn?: Shape | "struck"];

/** The upper edge and the height of each line as which a bar is drawn, of its own. */
export function strips(edge: number, high: number, shape: Shape): [number, number][] {
  const line = Math.max(2, Math.round(high * 0.36));
  if (shape === "single") return [[edge + (high - line) / 2, line]];
  return shape === "double" ? [[edge, line], [edge + high - line, line]] : [[edge, high]];
}

export interface Picture {
  title: string;
  legend: () => readonly Key[];
  /** In CSS pixels, without title and legend. */
  width: number;
  height: number;
  draw: (pen: Pen) => void;
}

const FONT = "12px system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
const MARGIN_PX = 12;
const LINE_PX = 20;
const NARROWEST_PX = 480;

/** Writes what is drawn as SVG elements, `top` pixels further down. */
class SvgPen implements Pen {
  readonly elements: string[] = [];
  fillStyle: Pen["fillStyle"] = "#000";
  strokeStyle: Pen["strokeStyle"] = "#000";
  lineWidth = 1;
  globalAlpha = 1;
  textBaseline: CanvasTextBaseline = "middle";
  font = FONT;
  top = 0;
  #dash: number[] = [];
  #path = "";
  #ruler = document.createElement("canvas").getContext("2d")!;

  fillRect(x: number, y: number, width: number, height: number): void {
    if (this.fillStyle !== "transparent") this.#rect(x, y, width, height, this.#filled());
  }
  strokeRect(x: number, y: number, width: number, height: number): void {
    this.#rect(x, y, width, height, this.#stroked());
  }
  /** A text that is too wide is narrowed, as on a canvas. */
  fillText(text: string, x: number, y: number, most = Infinity): void {
    const narrowed = this.measureText(text).width > most ? ` textLength="${most}" lengthAdjust="spacingAndGlyphs"` : "";
    const style = this.#filled() + narrowed;
    this.elements.push(`<text x="${place(x)}" y="${place(y + this.top)}"${style}>${escaped(text)}</text>`);
  }
  measureText(text: string): TextMetrics {
    this.#ruler.font = FONT;
    return this.#ruler.measureText(text);
  }
  setLineDash(dash: number[]): void {
    this.#dash = dash;
  }
  beginPath(): void {
    this.#path = "";
  }
  moveTo(x: number, y: number): void {
    this.#path += `M${place(x)} ${place(y + this.top)}`;
  }
  lineTo(x: number, y: number): void {
    this.#path += `L${place(x)} ${place(y + this.top)}`;
  }
  stroke(): void {
    this.elements.push(`<path d="${this.#path}"${this.#stroked()}/>`);
  }
  fill(): void {
    this.elements.push(`<path d="${this.#path}"${this.#filled()}/>`);
  }

  #rect(x: number, y: number, width: number, height: number, style: string): void {
    const [left, upper] = [place(x), place(y + this.top)];
    this.elements.push(`<rect x="${left}" y="${upper}" width="${place(width)}" height="${place(height)}"${style}/>`);
  }
  #filled(): string {
    const opacity = this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : "";
    return ` fill="${escaped(String(this.fillStyle))}"${opacity}`;
  }
  #stroked(): string {
    const dash = this.#dash.length ? ` stroke-dasharray="${this.#dash.join(" ")}"` : "";
    return ` class="line" stroke="${escaped(String(this.strokeStyle))}" stroke-width="${this.lineWidth}"${dash}`;
  }
}

/** The picture as the text of an SVG file. */
export function svg(picture: Picture): string {
  const pen = new SvgPen();
  const scheme = document.documentElement.dataset.scheme;
  // Colours are those of the style sheet. The page itself isn't painted before the scheme is back.
  document.documentElement.dataset.scheme = "light";
  try {
    const width = Math.max(picture.width, NARROWEST_PX);
    pen.top = heading(pen, picture, width - MARGIN_PX);
    picture.draw(pen);
    const [wide, high] = [place(width + 2 * MARGIN_PX), place(pen.top + picture.height + MARGIN_PX)];
    const box = `${-MARGIN_PX} 0 ${wide} ${high}`;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${high}" viewBox="${box}">
<title>${escaped(picture.title)}</title>
<style>text { font: ${FONT}; dominant-baseline: central } .line { fill: none }</style>
<rect x="${-MARGIN_PX}" width="100%" height="100%" fill="${colour("--ground")}"/>
${pen.elements.join("\n")}
</svg>
`;
  } finally {
    document.documentElement.dataset.scheme = scheme;
  }
}

/** Draws title and legend. The height that they take, in pixels. */
function heading(pen: SvgPen, picture: Picture, width: number): number {
  const now = moment.value;
  pen.fillStyle = colour("--text");
  pen.fillText(`${picture.title}${now ? ` · ${stamp(now.time)}, event ${now.at}` : ""}`, 0, MARGIN_PX + LINE_PX / 2);
  let [x, y] = [0, MARGIN_PX + 1.5 * LINE_PX];
  for (const [name, fill, drawn] of picture.legend()) {
    const wide = pen.measureText(name).width + 34;
    if (x && x + wide > width) [x, y] = [0, y + LINE_PX];
    pen.fillStyle = fill;
    if (drawn === "struck") line(pen, fill, [x, y + 5], [x + 10, y - 5]);
    else for (const [edge, high] of drawn ? strips(y - 4, 8, drawn) : [[y - 5, 10] as const]) pen.fillRect(x, edge, 10, high);
    pen.fillStyle = colour("--text");
    pen.fillText(name, x + 15, y);
    x += wide;
  }
  return y + LINE_PX;
}

function line(pen: Pen, stroke: string, from: readonly [number, number], to: readonly [number, number]): void {
  pen.strokeStyle = stroke;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}

/** Two digits after the point are exact enough, and keep a file of many bars small. */
const place = (value: number): string => String(Math.round(value * 100) / 100);
const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (one) => ENTITIES[one]!);
