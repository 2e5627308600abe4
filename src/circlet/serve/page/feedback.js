// Feedback: labels that are right or wrong for a text, undo, and the state of learning.

import { announce, byId, element, plural } from "./dom.js";

const SOON = 600;
const REMEMBERED = 50;
const LISTED = 5;

export class Feedback {
  constructor(page, { onChange, onVersion }) {
    this.page = page;
    this.onChange = onChange; // (): verdicts have changed
    this.onVersion = onVersion; // (version): another version answers
    this.entries = [];
    this.state = null;
    this.turn = Promise.resolve();
    this.line = byId("learning");
    this.rollBack = byId("roll-back");
    this.rollBack.addEventListener("click", () => this.#inTurn(() => this.#rollBack()));
  }

  /** Another model is shown, or the service is back. */
  async load() {
    clearTimeout(this.timer);
    this.entries = [];
    this.state = null;
    for (const part of document.querySelectorAll(".feedback")) part.hidden = !this.page.model.can_learn;
    byId("suggestions").classList.toggle("read-only", !this.page.model.can_learn);
    if (this.page.model.can_learn) await Promise.all([this.refresh(), this.#attempt(() => this.#list())]);
    this.onChange();
  }

  /** "accept", "reject", or undefined if nobody has judged this label of this text. */
  verdict(text, label) {
    return this.#find(text, label)?.kind;
  }

  /** Accept or reject a label, or undo that if it was done before. */
  toggle(text, label, kind) {
    return this.#inTurn(async () => {
      const said = this.#find(text, label);
      if (said) await this.#send(`/feedback/${encodeURIComponent(said.entry.id)}`, { method: "DELETE" });
      if (said?.kind !== kind) {
        const body = { text, accept: kind === "accept" ? [label] : [], reject: kind === "reject" ? [label] : [] };
        await this.#send("/feedback", { method: "POST", body });
        announce(`${kind === "accept" ? "Accepted" : "Rejected"} ${label}.`);
      } else {
        announce(`Undone: ${label}.`);
      }
      await this.#list();
    });
  }

  /** Request the state of learning, and again soon while the model learns. */
  refresh() {
    return this.#attempt(async () => this.#follow(await this.page.api.model(this.page.model.id, "/learning")));
  }

  async #send(path, options) {
    const answer = await this.page.api.model(this.page.model.id, path, options);
    this.#follow(answer.learning);
  }

  async #rollBack() {
    const { version } = await this.page.api.model(this.page.model.id, "/rollback", { method: "POST", body: {} });
    announce(`Rolled back. Version ${version} answers now.`);
    await Promise.all([this.refresh(), this.#list()]);
  }

  #find(text, label) {
    for (const entry of this.entries) {
      if (entry.undone || entry.text !== text) continue;
      if (entry.accept.includes(label)) return { entry, kind: "accept" };
      if (entry.reject.includes(label)) return { entry, kind: "reject" };
    }
    return undefined;
  }

  #follow(state) {
    const before = this.state;
    this.state = state;
    const { text, kind } = describe(state, before);
    this.line.textContent = text;
    this.line.className = `learning-state ${kind}`;
    this.rollBack.disabled = !state.can_roll_back || state.state === "learning";
    if (before && before.version !== state.version) this.onVersion(state.version);
    clearTimeout(this.timer);
    if (isBusy(state)) this.timer = setTimeout(() => this.refresh(), SOON);
  }

  async #list() {
    const { id } = this.page.model;
    const { entries } = await this.page.api.model(id, `/feedback?limit=${REMEMBERED}`);
    this.entries = [...entries].sort((a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : 0));
    const active = this.entries.filter((entry) => !entry.undone);
    byId("taught").replaceChildren(...active.slice(0, LISTED).map((entry) => this.#item(entry)));
    byId("taught-empty").hidden = active.length > 0;
    byId("taught-more").textContent = active.length > LISTED ? `and ${plural(active.length - LISTED, "earlier one")}` : "";
    this.onChange();
  }

  #item(entry) {
    const named = [...entry.accept.map((label) => ["✓", label]), ...entry.reject.map((label) => ["✗", label])];
    const labels = named.map(([, label]) => label).join(", ");
    return element(
      "li",
      {},
      element(
        "span",
        { className: "entry" },
        ...named.map(([sign, label]) => element("b", {}, `${sign} ${label} `)),
        element("span", { className: "muted", title: entry.text }, entry.text),
      ),
      element(
        "button",
        {
          type: "button",
          className: "quiet",
          "aria-label": `Undo ${labels}`,
          onclick: () => this.#inTurn(() => this.#undo(entry, labels)),
        },
        "Undo",
      ),
    );
  }

  async #undo(entry, labels) {
    await this.#send(`/feedback/${encodeURIComponent(entry.id)}`, { method: "DELETE" });
    announce(`Undone: ${labels}.`);
    await this.#list();
    (byId("taught").querySelector("button") ?? this.page.editor.area).focus();
  }

  /** Run actions one after another: two quick presses must not both see the state before the first. */
  #inTurn(action) {
    this.turn = this.turn.then(() => this.#attempt(action));
    return this.turn;
  }

  /** Run an action, and show its error if it fails. */
  async #attempt(action) {
    try {
      await action();
    } catch (error) {
      this.line.textContent = error.message;
      this.line.className = "learning-state failed";
    }
  }
}

const isBusy = ({ state, waiting }) => state === "learning" || (state !== "failed" && waiting > 0);

function describe(now, before) {
  const note = now.message ? ` ${now.message}` : "";
  if (now.state === "failed") return { kind: "failed", text: `Could not learn.${note}` };
  if (isBusy(now)) return { kind: "busy", text: "Learning…" };
  const version = `Version ${now.version}, ${now.taught ? `after ${plural(now.taught, "lesson")}` : "as it was trained"}.`;
  if (before && isBusy(before)) return { kind: "done", text: `Learned. ${version}${note}` };
  return { kind: "idle", text: `${version}${note}` };
}
