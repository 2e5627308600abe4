// The model's card: its training data, size, learning curve, and the settings chosen for it, with reasons.

import { drawCurves } from "./chart.js";
import { barItem, byId, bytes, count, element, percent } from "./dom.js";

/** Fill the card in. */
export function showCard(card) {
  byId("card-title").textContent = card.id;
  byId("card-facts").replaceChildren(...facts(card).flatMap(([name, value]) => fact(name, value)));
  showCurve(card);
  const parts = [...card.parts].sort((a, b) => b.bytes - a.bytes);
  byId("card-parts").replaceChildren(
    ...parts.map((part) => barItem(part.name, part.bytes / (parts[0].bytes || 1), bytes(part.bytes))),
  );
  byId("card-decided").replaceChildren(...card.decided.map(decisionRow));
  byId("card-decided-section").hidden = card.decided.length === 0;
}

function facts(card) {
  const { training = {}, parameters = {} } = card;
  const total = typeof parameters.total === "number" ? parameters.total : null;
  return [
    ["Trained on", [training.data, training.format].filter(Boolean).join(", ")],
    ["Documents", count(card.documents)],
    ["Labels", count(card.labels)],
    ["Features", count(card.features)],
    ["Takes", card.takes === "texts" ? "texts" : "feature rows"],
    ["Parameters", total === null ? "" : count(total)],
    ["Size", bytes(card.bytes)],
    ["Preset", training.preset ?? ""],
    ["Version", card.version],
    ["Its own threshold", card.threshold > 0 ? percent(card.threshold) : ""],
    ["Documents like this", card.has_index ? "yes" : "no: trained without --keep-index"],
    ["Learns from you", card.can_learn ? "yes" : "no"],
  ].filter(([, value]) => value !== "");
}

function fact(name, value) {
  return [element("dt", {}, name), element("dd", { className: "number" }, String(value))];
}

function showCurve(card) {
  const drawing = drawCurves(card.history, card.metric);
  const metrics = card.history.findLast((record) => typeof record[card.metric] === "number");
  byId("card-metric").textContent = metrics ? `${card.metric} ${percent(metrics[card.metric])}` : "";
  byId("card-curve").replaceChildren(
    drawing ?? element("p", { className: "muted" }, "No document was held out in training, so there is nothing to draw."),
  );
}

function decisionRow({ setting, value, why }) {
  const shown = Array.isArray(value) ? value.join(", ") : value === null ? "none" : String(value);
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, setting.replaceAll("_", " ")),
    element("td", { className: "number" }, shown),
    element("td", {}, why),
  );
}
