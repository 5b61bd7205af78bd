// What is seen as one HTML file, without any request: for a report of a bug, with pseudonyms on request.
import { seeAll } from "./seen";
import { masked, moment, problem, view, words } from "./store";
import { svg, type Picture } from "./svg";

const PSEUDONYMS = `<p class="note">The names of jobs, namespaces, nodes and queues on this page are pseudonyms.</p>`;

const settled = (): Promise<void> =>
  new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())));

export async function exportPage(pseudonyms: boolean): Promise<void> {
  if (pseudonyms) {
    try {
      await seeAll();
    } catch (caught) {
      problem.value = `No export: ${words(caught)}.`;
      return;
    }
  }
  masked.value = pseudonyms;
  try {
    await settled();
    // Charts are drawn after the page is laid out.
    await settled();
    const name = `arranger-${view.value}-${moment.value?.at ?? 0}${pseudonyms ? "-pseudonyms" : ""}.html`;
    save(await document_(pseudonyms), name, "text/html");
  } finally {
    masked.value = false;
  }
}

const pictures = (): HTMLCanvasElement[] => [...document.querySelectorAll<HTMLCanvasElement>("main canvas")];

export const hasPicture = (): boolean => pictures().length > 0;

/** The largest picture of the view as PNG. */
export function exportPicture(): void {
  const canvas = pictures().sort((one, other) => other.width * other.height - one.width * one.height)[0];
  canvas?.toBlob((picture) => picture && save(picture, `arranger-${view.value}-${moment.value?.at ?? 0}.png`));
}

export function exportSvg(picture: Picture): void {
  save(svg(picture), `arranger-${view.value}-${moment.value?.at ?? 0}.svg`, "image/svg+xml");
}

async function document_(pseudonyms: boolean): Promise<string> {
  const page = document.querySelector("#app")!;
  const copy = page.cloneNode(true) as HTMLElement;
  const canvases = [...page.querySelectorAll("canvas")];
  [...copy.querySelectorAll("canvas")].forEach((one, index) => {
    const picture = document.createElement("img");
    const source = canvases[index]!;
    picture.src = source.toDataURL("image/png");
    picture.style.cssText = source.style.cssText;
    picture.alt = source.getAttribute("aria-label") ?? "";
    one.replaceWith(picture);
  });
  // What needs the server or asks for something is left out.
  for (const one of copy.querySelectorAll("dialog, button, datalist, .live-only, .tip")) {
    if (one.matches("th *, .text")) one.replaceWith(one.textContent ?? "");
    else one.remove();
  }
  for (const one of copy.querySelectorAll("a")) one.removeAttribute("href");
  for (const one of copy.querySelectorAll<HTMLInputElement>(".number-of-event, .typed")) one.replaceWith(one.value);
  for (const one of copy.querySelectorAll("input, select, textarea")) one.setAttribute("disabled", "");
  for (const one of copy.querySelectorAll("[role=slider]")) {
    one.setAttribute("tabindex", "-1");
    // What was last pointed at is told with its true names.
    one.removeAttribute("title");
  }
  const style = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText);
  const root = document.documentElement;
  return `<!doctype html>
<html lang="en" data-scheme="${root.dataset.scheme}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Arranger: ${view.value} at event ${moment.value?.at ?? 0}${pseudonyms ? ", with pseudonyms" : ""}</title>
<style>${style.join("\n").replaceAll("</", "<\\/")}</style></head>
<body>${pseudonyms ? PSEUDONYMS : ""}<div id="app">${copy.innerHTML}</div></body></html>
`;
}

function save(content: string | Blob, name: string, type = ""): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(typeof content === "string" ? new Blob([content], { type }) : content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
