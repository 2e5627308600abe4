// The text, with marked words. Marks are drawn on a copy of the text that lies behind the textarea, in
// the same type and with the same scroll position, so that nothing moves and the text stays editable.

import { byId, element } from "./dom.js";
import { mergeSpans, pieces, pointsToUnits } from "./offsets.js";

const LEVELS = 5;
const SHOWN_TERMS = 8;

export class Editor {
  constructor({ onInput }) {
    this.area = byId("text");
    this.backdrop = byId("backdrop");
    this.why = byId("why");
    this.hint = this.why.firstElementChild;
    this.area.addEventListener("input", () => {
      this.clear();
      onInput();
    });
    this.area.addEventListener("scroll", () => this.#align(), { passive: true });
    new ResizeObserver(() => this.#align()).observe(this.area);
  }

  get text() {
    return this.area.value;
  }

  /** Put in another text, as if it were typed. */
  replace(text) {
    this.area.value = text;
    this.area.scrollTop = 0;
    this.area.dispatchEvent(new Event("input"));
    this.area.focus();
  }

  /** Mark the words of an explanation, and list its strongest terms. */
  show(explanation) {
    const toUnits = pointsToUnits(this.text);
    const spans = mergeSpans(explanation.spans.map(([start, end, value]) => [toUnits(start), toUnits(end), value]));
    const most = Math.max(...spans.map(([, , value]) => Math.abs(value)), 0);
    this.backdrop.replaceChildren(
      ...pieces(this.text, spans).map(({ text, value }) =>
        level(value, most) ? element("mark", { className: `${side(value)} level-${level(value, most)}` }, text) : text,
      ),
      "\n", // as in the textarea, a last line break starts a line
    );
    this.#align();
    this.#explain(explanation);
  }

  clear() {
    if (this.why.firstElementChild === this.hint) return;
    this.backdrop.replaceChildren();
    this.why.replaceChildren(this.hint);
  }

  /** Say why there is no explanation. */
  complain(message) {
    this.backdrop.replaceChildren();
    this.why.replaceChildren(element("p", { className: "muted" }, message));
  }

  #explain({ label, contributions }) {
    const strongest = contributions.slice(0, SHOWN_TERMS);
    const rest = contributions.length - strongest.length;
    this.why.replaceChildren(
      element("p", { className: "why-label" }, "Why ", element("b", {}, label)),
      strongest.length
        ? element(
            "ul",
            { className: "terms" },
            ...strongest.map(({ term, kind, value }) =>
              element(
                "li",
                { className: side(value), title: `${kind}: ${value > 0 ? "speaks for it" : "speaks against it"}` },
                element("span", { className: "term" }, term),
                " ",
                element("span", { className: "number" }, signed(value)),
              ),
            ),
            ...(rest ? [element("li", { className: "rest" }, `and ${rest} more`)] : []),
          )
        : element("p", { className: "muted" }, "No word of this text is known to the model."),
    );
  }

  #align() {
    this.backdrop.scrollTop = this.area.scrollTop;
  }
}

const side = (value) => (value > 0 ? "for" : "against");
const level = (value, most) => (most ? Math.round((LEVELS * Math.abs(value)) / most) : 0); // 0: too weak to show
const signed = (value) => `${value > 0 ? "+" : "\u2212"}${Math.abs(value).toFixed(2)}`;

/** Explanations, requested once per model, version, text and label. */
export class Explanations {
  constructor(api) {
    this.api = api;
    this.asked = new Map(); // promises, so that a question on its way is not asked again
  }

  get(model, version, text, label) {
    const key = JSON.stringify([model, version, text, label]);
    if (!this.asked.has(key)) {
      if (this.asked.size >= 200) this.asked.delete(this.asked.keys().next().value); // the oldest
      const answered = this.#ask(model, text, label);
      this.asked.set(key, answered);
      answered.catch(() => this.asked.delete(key)); // next time, try again
    }
    return this.asked.get(key);
  }

  async #ask(model, text, label) {
    const body = { text, labels: [label] };
    return (await this.api.model(model, "/explain", { method: "POST", body })).explanations[0];
  }
}
