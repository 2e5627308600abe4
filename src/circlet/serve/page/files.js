// A file's documents, tagged in batches. The file is read here and only its texts go to the service.

import { ApiError, OfflineError } from "./api.js";
import { announce, byId, count, element, percent, plural } from "./dom.js";
import { batches, documentsOf, readTable, TableError, toCsv, toJsonl } from "./tables.js";

const LARGEST = 200_000_000; // bytes
const PREVIEWED = 10;
const BUSY = 2; // seconds

export class Files {
  constructor(page) {
    this.page = page;
    this.results = [];
    const input = byId("file-input");
    input.addEventListener("change", () => {
      if (input.files.length) this.open(input.files[0]);
      input.value = ""; // so that the same file can be chosen again
    });
    this.#takeDrops(byId("drop"));
    byId("text-column").addEventListener("change", () => this.#preview());
    byId("file-start").addEventListener("click", () => this.#start());
    byId("file-cancel").addEventListener("click", () => this.controller?.abort());
    byId("save-jsonl").addEventListener("click", () => this.#save("jsonl", toJsonl, "application/jsonl"));
    byId("save-csv").addEventListener("click", () => this.#save("csv", toCsv, "text/csv"));
  }

  async open(file) {
    this.controller?.abort();
    this.#say("");
    this.results = [];
    this.#stage("file-empty");
    try {
      if (file.size > LARGEST)
        throw new TableError(`found ${count(file.size)} bytes; wanted at most ${count(LARGEST)}: use circlet predict`);
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      this.table = readTable(file.name, text);
    } catch (error) {
      const encoding = error instanceof TypeError ? "found bytes that are not UTF-8; wanted a text file" : null;
      this.#say(`${file.name}: ${encoding ?? error.message}`, "error");
      return;
    }
    this.name = file.name;
    byId("file-name").textContent = file.name;
    byId("file-facts").textContent = `${this.table.format}, ${plural(this.table.rows.length, "document")}`;
    const { columns, textColumn } = this.table;
    const shown = columns.map((column, index) => element("option", { value: index }, column || `column ${index + 1}`));
    byId("text-column").replaceChildren(...shown);
    byId("text-column").value = textColumn;
    byId("text-column").parentElement.hidden = columns.length < 2 || this.table.format.startsWith("text");
    this.#preview();
    this.#stage("file-ready");
    byId("file-start").focus();
  }

  #preview() {
    const first = this.table.rows[0][Number(byId("text-column").value)];
    byId("file-first").textContent = String(first ?? "");
  }

  async #start() {
    let documents;
    try {
      documents = documentsOf(this.table, Number(byId("text-column").value));
    } catch (error) {
      this.#say(`${this.name}: ${error.message}`, "error");
      return;
    }
    this.#say("");
    this.results = [];
    this.controller = new AbortController();
    const { signal } = this.controller;
    const options = this.page.suggestions.options();
    const model = this.page.model.id;
    this.#progress(0, documents.length);
    this.#stage("file-running");
    byId("file-cancel").focus();
    try {
      for (const batch of batches(documents)) {
        this.results.push(...(await this.#tag(model, batch, options, signal)));
        this.#progress(this.results.length, documents.length);
      }
      this.#finish(`Done: ${plural(documents.length, "document")} tagged.`);
    } catch (error) {
      const done = `${count(this.results.length)} of ${plural(documents.length, "document")} are tagged`;
      if (signal.aborted) this.#finish(`Cancelled. ${done}; these can be saved.`);
      else this.#finish(`${error.message} ${done}.`, "error");
    }
  }

  /** The results of one batch. It waits for a busy or missing service, and halves what is too large. */
  async #tag(model, batch, options, signal) {
    for (;;) {
      signal.throwIfAborted();
      try {
        const texts = batch.map(({ text }) => text);
        const { results } = await this.page.api.suggest(model, { texts, ...options }, signal);
        return batch.map(({ id }, index) => result(id, results[index].labels));
      } catch (error) {
        if (signal.aborted) throw error;
        if (error instanceof OfflineError) await orAborted(this.page.connection.whenUp(), signal);
        else if (error instanceof ApiError && (error.status === 503 || error.status === 429))
          await orAborted(pause(error.retryAfter ?? BUSY), signal);
        else if (error instanceof ApiError && error.status === 413 && batch.length > 1) {
          const middle = Math.ceil(batch.length / 2);
          const first = await this.#tag(model, batch.slice(0, middle), options, signal);
          return [...first, ...(await this.#tag(model, batch.slice(middle), options, signal))];
        } else if (error instanceof ApiError && batch.length === 1)
          throw new ApiError(error.status, `Document ${batch[0].id}: ${error.message}`);
        else throw error;
      }
    }
  }

  #progress(done, all) {
    byId("file-progress").value = done / all;
    byId("file-count").textContent = `${count(done)} of ${count(all)}`;
  }

  #finish(message, kind = "note") {
    this.#say(message, kind);
    const rows = this.results.slice(0, PREVIEWED).map(({ id, labels, scores }) => {
      const named = labels.map((label, index) =>
        element("span", { className: "tag" }, label, " ", element("span", { className: "muted number" }, percent(scores[index]))),
      );
      return element("tr", {}, element("th", { scope: "row" }, String(id)), element("td", {}, ...named));
    });
    byId("file-rows").replaceChildren(...rows);
    const more = this.results.length - rows.length;
    byId("file-more").textContent = more > 0 ? `and ${count(more)} more, which are saved too` : "";
    this.#stage(this.results.length ? "file-done" : "file-ready");
    byId(this.results.length ? "save-jsonl" : "file-start").focus();
  }

  #say(message, kind = "note") {
    const line = byId("file-message");
    line.textContent = message;
    line.className = `message ${kind}`;
    line.hidden = !message;
    if (message) announce(message);
  }

  #stage(shown) {
    for (const id of ["file-ready", "file-running", "file-done"]) byId(id).hidden = id !== shown;
  }

  #save(ending, write, type) {
    const url = URL.createObjectURL(new Blob([write(this.results)], { type }));
    const stem = this.name.replace(/\.[^.]+$/, "");
    element("a", { href: url, download: `${stem}.tagged.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  #takeDrops(zone) {
    const inside = (on) => (event) => {
      event.preventDefault();
      zone.classList.toggle("over", on);
    };
    zone.addEventListener("dragover", inside(true));
    zone.addEventListener("dragleave", inside(false));
    zone.addEventListener("drop", (event) => {
      inside(false)(event);
      const file = event.dataTransfer.files[0];
      if (file) this.open(file);
    });
  }
}

function result(id, labels) {
  const scores = labels.map(({ probability }) => Number(probability.toFixed(4)));
  return { id, labels: labels.map(({ label }) => label), scores };
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/** `promise`, unless the signal comes first. */
function orAborted(promise, signal) {
  const aborted = new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  return Promise.race([promise, aborted]);
}
