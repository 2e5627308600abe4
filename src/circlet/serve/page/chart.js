// The learning curve: a metric over epochs as an inline SVG, with a line for each network of an ensemble.

import { svg } from "./dom.js";

const WIDTH = 640;
const HEIGHT = 220;
const MARGIN = { left: 44, right: 84, top: 28, bottom: 34 };

/** Points `{epoch, value}` of each network, in percent; epochs without the metric are left out. */
export function curves(history, metric) {
  const members = new Map();
  for (const record of history) {
    const value = record[metric];
    if (typeof value !== "number") continue;
    const member = record.member ?? 1;
    if (!members.has(member)) members.set(member, []);
    members.get(member).push({ epoch: record.epoch, value: 100 * value });
  }
  return [...members.values()];
}

/** About `wanted` round numbers between `low` and `high`. */
export function ticks(low, high, wanted = 4) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

/** The drawing, or null if no epoch has the metric. */
export function drawCurves(history, metric) {
  const lines = curves(history, metric);
  const points = lines.flat();
  if (!points.length) return null;
  const [firstEpoch, lastEpoch] = extent(points.map(({ epoch }) => epoch));
  const [lowest, highest] = extent(points.map(({ value }) => value));
  const low = Math.max(0, lowest - 0.08 * (highest - lowest || 10));
  const x = scale(firstEpoch, lastEpoch, MARGIN.left, WIDTH - MARGIN.right);
  const y = scale(low, highest, HEIGHT - MARGIN.bottom, MARGIN.top);
  const best = points.reduce((a, b) => (b.value > a.value ? b : a));
  const title = `${metric} on held-out documents over ${lastEpoch} epochs; the best is ${best.value.toFixed(1)} %, at epoch ${best.epoch}`;
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": title });
  for (const value of ticks(low, highest)) {
    drawing.append(
      svg("line", { class: "grid", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, `${value}`),
    );
  }
  for (const epoch of ticks(firstEpoch, lastEpoch, 6).filter(Number.isInteger))
    drawing.append(svg("text", { class: "tick", x: x(epoch), y: HEIGHT - 14, "text-anchor": "middle" }, `${epoch}`));
  drawing.append(
    svg("text", { class: "axis", x: MARGIN.left, y: 13 }, `${metric} on held-out documents, %`),
    svg("text", { class: "axis", x: WIDTH - MARGIN.right + 18, y: HEIGHT - 14 }, "epoch"),
  );
  for (const line of lines) {
    const path = line.map(({ epoch, value }) => `${x(epoch).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    const last = line.at(-1);
    drawing.append(
      svg("polyline", { class: "curve", points: path }),
      svg("circle", { class: "dot", cx: x(last.epoch), cy: y(last.value), r: 4 }),
    );
  }
  const end = lines.at(-1).at(-1);
  drawing.append(svg("text", { class: "value", x: x(end.epoch) + 10, y: y(end.value) + 5 }, `${end.value.toFixed(1)} %`));
  return drawing;
}

function extent(values) {
  return [Math.min(...values), Math.max(...values)];
}

function scale(fromLow, fromHigh, toLow, toHigh) {
  if (fromHigh === fromLow) return () => (toLow + toHigh) / 2;
  return (value) => toLow + ((value - fromLow) / (fromHigh - fromLow)) * (toHigh - toLow);
}
