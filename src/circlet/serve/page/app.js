// The page as a whole: chooses the model, connects the parts, and updates the header.

import { Api, ApiError, OfflineError } from "./api.js";
import { showCard } from "./card.js";
import { Combobox } from "./combobox.js";
import { asCurl, copyText } from "./copying.js";
import { Connection } from "./connection.js";
import { announce, arrowKeys, byId, count, element, percent, plural } from "./dom.js";
import { Editor, Explanations } from "./editor.js";
import { examplesFor } from "./examples.js";
import { Files } from "./files.js";
import { askToken } from "./token.js";
import { Suggestions } from "./suggestions.js";
import { Similar } from "./similar.js";
import { Feedback } from "./feedback.js";
import { Vocabulary } from "./vocabulary.js";

const VIEWS = ["text", "file", "model"];
const LOAD_AGAIN = 5; // seconds

class Page {
  constructor() {
    this.model = null;
    this.settings = { k: 5, threshold: 0, favorRare: 0 };
    this.version = null;
    this.connection = new Connection({
      onChange: (up) => this.#connected(up),
      onWait: (seconds) => this.#status("down", `Offline. Next try in ${seconds} s`),
      onBeat: () => this.model?.can_learn && this.feedback.refresh(),
    });
    this.api = new Api({ askToken, onOffline: () => this.connection.lost() });
    this.explanations = new Explanations(this.api);
    this.editor = new Editor({ onInput: () => this.#typed() });
    this.feedback = new Feedback(this, {
      onChange: () => this.suggestions.judge(),
      onVersion: (version) => this.#answersFrom(version),
    });
    this.suggestions = new Suggestions(this, {
      onPreview: (label) => this.#explain(label),
      onVersion: (version) => this.#answeredBy(version),
      onShown: (text) => {
        byId("copy-json").disabled = text === null;
        this.similar.refresh(text);
      },
    });
    this.similar = new Similar(this);
    this.files = new Files(this);
    this.vocabulary = new Vocabulary(this);
    this.combobox = new Combobox({
      input: byId("new-label"),
      list: byId("label-options"),
      find: async (query, limit, signal) => (await this.vocabulary.find(query, limit, signal)).labels,
      choose: (label) => this.#add(label),
    });
    this.#listen();
    this.#view();
    this.connection.start(this.api);
  }

  /** Show a model: the one of the address, or else the first. Try again until that works. */
  async load() {
    try {
      const { models } = await this.api.models();
      this.models = models;
      byId("model").replaceChildren(
        ...models.map(({ id, labels }) => element("option", { value: id }, `${id} (${plural(labels, "label")})`)),
      );
      byId("model-switch").hidden = models.length < 2;
      const wanted = new URLSearchParams(location.search).get("model");
      await this.#open(models.some(({ id }) => id === wanted) ? wanted : models[0].id);
      this.#status("up", "Connected");
    } catch (error) {
      if (error instanceof ApiError) {
        this.#status("failed", error.message);
        setTimeout(() => this.load(), 1000 * (error.retryAfter ?? LOAD_AGAIN));
      } else if (error instanceof OfflineError) {
        await this.connection.whenUp();
        await this.load();
      } else {
        throw error;
      }
    }
  }

  async #open(id) {
    this.#describe(await this.api.model(id));
    this.version = this.model.version;
    byId("model").value = id;
    byId("model-name").textContent = this.models.length > 1 ? "" : id;
    const takesTexts = this.model.takes === "texts";
    byId("rows-only").hidden = takesTexts;
    byId("workbench").hidden = byId("below").hidden = !takesTexts;
    byId("tab-file").disabled = !takesTexts;
    this.#view();
    await Promise.all([this.feedback.load(), this.vocabulary.load()]);
    if (takesTexts) {
      this.#showExamples(await examplesFor(this.model, this.api));
      this.suggestions.refresh({ now: true });
    }
  }

  #describe(card) {
    this.model = card;
    byId("vocabulary").textContent = `of ${plural(card.labels, "label")}`;
    byId("own-threshold").replaceChildren(element("option", { value: card.threshold }));
    showCard(card);
  }

  async #switch(id) {
    const address = new URL(location.href);
    address.searchParams.set("model", id);
    history.replaceState(null, "", address);
    await this.load();
    announce(`Model ${id}, ${plural(this.model.labels, "label")}.`);
  }

  #showExamples(texts) {
    byId("example-list").replaceChildren(
      ...texts.map((text) =>
        element("li", {}, element("button", { type: "button", onclick: () => this.editor.replace(text) }, text)),
      ),
    );
  }

  #typed() {
    const empty = !this.editor.text.trim();
    for (const id of ["copy-curl", "clear", "new-label", "add-label"]) byId(id).disabled = empty;
    this.suggestions.refresh();
    this.suggestions.judge();
  }

  async #explain(label) {
    const question = (this.explaining = { label }); // the newest one
    if (label === null) {
      this.editor.clear();
      return;
    }
    const text = this.editor.text;
    const wanted = () => question === this.explaining && text === this.editor.text;
    try {
      const found = await this.explanations.get(this.model.id, this.version, text, label);
      if (wanted()) this.editor.show(found);
    } catch (error) {
      if (wanted()) this.editor.complain(error.message);
    }
  }

  #add(label) {
    const text = this.editor.text;
    if (this.feedback.verdict(text, label) === "accept") announce(`${label} has been accepted before.`);
    else this.feedback.toggle(text, label, "accept");
  }

  /** An answer came from this version. It may be new, because of somebody else's feedback. */
  #answeredBy(version) {
    if (version === this.version) return;
    this.version = version;
    if (this.model.can_learn) this.feedback.refresh();
  }

  /** The model has learned, or was rolled back: ask again. */
  async #answersFrom(version) {
    this.version = version;
    this.suggestions.refresh({ now: true });
    const known = this.model;
    const card = await this.api.model(known.id).catch(() => known); // the old card, until the next version
    if (this.model === known) this.#describe(card);
  }

  #connected(up) {
    if (up) {
      this.#status("up", "Connected");
      announce("The server is back.");
      if (this.model) this.feedback.load().then(() => this.suggestions.refresh({ now: true }));
    } else {
      announce("The server does not answer.");
    }
  }

  #status(kind, text) {
    byId("connection").className = `connection ${kind}`;
    byId("connection").textContent = text;
    byId("retry").hidden = kind !== "down";
  }

  #listen() {
    byId("model").addEventListener("change", () => this.#switch(byId("model").value));
    byId("retry").addEventListener("click", () => this.connection.check());
    byId("clear").addEventListener("click", () => this.editor.replace(""));
    byId("copy-json").addEventListener("click", () => this.#copy("copy-json", JSON.stringify(this.suggestions.answer, null, 2)));
    byId("copy-curl").addEventListener("click", () => {
      this.#copy("copy-curl", asCurl(this.model.id, { text: this.editor.text, ...this.suggestions.options() }, this.api.hasToken));
    });
    byId("add").addEventListener("submit", (event) => event.preventDefault());
    byId("add-label").addEventListener("click", () => this.combobox.submit());
    this.editor.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("suggestions").querySelector("button")?.focus();
    });
    this.#slider("k", "k", count);
    this.#slider("threshold", "threshold", (value) => percent(value).replace(".0", ""));
    this.#slider("rare", "favorRare", (value) => value.toFixed(2));
    const tabs = VIEWS.map((name) => byId(`tab-${name}`));
    tabs[0].parentElement.addEventListener(
      "keydown",
      arrowKeys(() => tabs.filter((tab) => !tab.disabled), { previous: "ArrowLeft", next: "ArrowRight" }),
    );
    tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => (location.hash = VIEWS[index]));
      tab.addEventListener("focus", () => (location.hash = VIEWS[index]));
    });
    window.addEventListener("hashchange", () => this.#view());
  }

  #slider(id, name, format) {
    const input = byId(id);
    const show = () => {
      this.settings[name] = input.valueAsNumber;
      byId(`${id}-value`).textContent = format(input.valueAsNumber);
      byId("suggestions").style.setProperty("--rows", this.settings.k);
    };
    input.addEventListener("input", () => {
      show();
      this.suggestions.refresh();
    });
    show(); // browsers restore values when a page is loaded again
  }

  #view() {
    const wanted = location.hash.slice(1);
    const shown = VIEWS.includes(wanted) && !byId(`tab-${wanted}`).disabled ? wanted : "text";
    for (const name of VIEWS) {
      byId(`view-${name}`).hidden = name !== shown;
      byId(`tab-${name}`).setAttribute("aria-selected", name === shown);
      byId(`tab-${name}`).tabIndex = name === shown ? 0 : -1;
    }
  }

  async #copy(id, text) {
    const button = byId(id);
    const usual = (button.dataset.usual ??= button.textContent);
    button.textContent = (await copyText(text)) ? "Copied" : "Not allowed";
    announce(button.textContent);
    setTimeout(() => (button.textContent = usual), 1500);
  }
}

const page = new Page();
page.load();
