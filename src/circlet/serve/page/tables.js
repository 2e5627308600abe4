// Files of documents, read and written in the browser: CSV and TSV (RFC 4180), JSONL, and text with a document a line.

/** A mistake in a file, as one sentence. */
export class TableError extends Error {}

/** The rows of a CSV or TSV text as lists of cells. Quoted cells may have delimiters, quotes and line breaks. */
export function parseCsv(text, delimiter = ",") {
  const rows = [];
  let row = [];
  let at = 0;
  let line = 1;
  const endRow = () => {
    if (row.length > 1 || row[0] !== "") rows.push(row); // an empty line is no row
    row = [];
  };
  while (at < text.length) {
    let cell;
    if (text[at] === '"') {
      const opened = line;
      cell = "";
      for (at++; ; at += 2) {
        const quote = text.indexOf('"', at);
        if (quote < 0) throw new TableError(`line ${opened}: found a quote that is never closed; wanted another "`);
        const part = text.slice(at, quote);
        cell += part;
        line += part.split("\n").length - 1;
        at = quote;
        if (text[at + 1] !== '"') break;
        cell += '"';
      }
      at++;
      if (at < text.length && !`${delimiter}\r\n`.includes(text[at]))
        throw new TableError(`line ${line}: found ${JSON.stringify(text[at])} after a closing quote; wanted a delimiter`);
    } else {
      const start = at;
      while (at < text.length && text[at] !== delimiter && text[at] !== "\n" && text[at] !== "\r") at++;
      cell = text.slice(start, at);
    }
    row.push(cell);
    if (text[at] === delimiter) {
      at++;
      if (at === text.length) row.push("");
    } else {
      if (text[at] === "\r" && text[at + 1] === "\n") at++;
      at++;
      line++;
      endRow();
    }
  }
  if (row.length) endRow();
  return rows;
}

/**
 * A file's documents as `{format, columns, rows, textColumn, idColumn}`; `idColumn` is -1 if there are no ids.
 * The text is the column `text`, or else the first one; the ids are the column `id`.
 */
export function readTable(name, content) {
  const text = content.replace(/^\uFEFF/, "");
  const ending = name.toLowerCase().split(".").pop();
  let table;
  if (ending === "csv" || ending === "tsv") table = fromCsv(text, ending === "csv" ? "," : "\t");
  else if (ending === "jsonl" || ending === "ndjson") table = fromJsonl(text);
  else if (ending === "txt") table = fromLines(text);
  else throw new TableError(`found a file called ${name}; wanted one that ends in .csv, .tsv, .jsonl or .txt`);
  if (!table.rows.length) throw new TableError(`found no documents in ${name}; wanted at least one`);
  const find = (wanted) => table.columns.findIndex((column) => column.trim().toLowerCase() === wanted);
  return { ...table, textColumn: Math.max(0, find("text")), idColumn: find("id") };
}

function fromCsv(text, delimiter) {
  const [columns = [], ...rows] = parseCsv(text, delimiter);
  const wrong = rows.findIndex((row) => row.length !== columns.length);
  if (wrong >= 0)
    throw new TableError(
      `row ${wrong + 1}: found ${rows[wrong].length} cells; wanted ${columns.length}, as many as the header has`,
    );
  return { format: delimiter === "," ? "CSV" : "TSV", columns, rows };
}

function fromJsonl(text) {
  const records = [];
  text.split("\n").forEach((line, index) => {
    if (!line.trim()) return;
    let record;
    try {
      record = JSON.parse(line);
    } catch {
      throw new TableError(`line ${index + 1}: found ${JSON.stringify(line.slice(0, 40))}; wanted a JSON object`);
    }
    if (typeof record === "string") record = { text: record };
    if (record === null || typeof record !== "object" || Array.isArray(record))
      throw new TableError(`line ${index + 1}: found ${line.slice(0, 40)}; wanted a JSON object with "text"`);
    records.push(record);
  });
  const columns = [...new Set(records.flatMap((record) => Object.keys(record)))];
  return { format: "JSONL", columns, rows: records.map((record) => columns.map((column) => record[column])) };
}

function fromLines(text) {
  const lines = text.split(/\r?\n/);
  const filled = lines.flatMap((line, index) => (line.trim() ? [[line, index]] : []));
  // Empty lines are no documents, but they count: an id is the number of the line.
  return { format: "text, a document per line", columns: ["text", "id"], rows: filled };
}

/** The documents `{id, text}` of a table. Without ids, rows are numbered from 0, as `circlet predict` does. */
export function documentsOf(table, textColumn = table.textColumn, idColumn = table.idColumn) {
  return table.rows.map((row, index) => {
    const text = row[textColumn];
    if (typeof text !== "string" && typeof text !== "number")
      throw new TableError(
        `document ${index + 1}: found ${JSON.stringify(text) ?? "nothing"} as “${table.columns[textColumn]}”; wanted a text`,
      );
    return { id: idColumn < 0 ? index : (row[idColumn] ?? index), text: String(text) };
  });
}

/** Results `{id, labels, scores}` as JSONL, in the format of `circlet predict`. */
export function toJsonl(results) {
  return results.map(({ id, labels, scores }) => `${JSON.stringify({ id, labels, scores })}\n`).join("");
}

/** The same as CSV. Labels and scores are JSON lists, which circlet reads as labels again. */
export function toCsv(results) {
  const rows = results.map(({ id, labels, scores }) => [id, JSON.stringify(labels), JSON.stringify(scores)]);
  return [["id", "labels", "scores"], ...rows].map((row) => `${row.map(csvCell).join(",")}\n`).join("");
}

function csvCell(value) {
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Batches for requests, limited by the number of documents and of characters. */
export function* batches(documents, { documentsEach = 32, charactersEach = 200_000 } = {}) {
  let batch = [];
  let characters = 0;
  for (const document of documents) {
    if (batch.length && (batch.length === documentsEach || characters + document.text.length > charactersEach)) {
      yield batch;
      batch = [];
      characters = 0;
    }
    batch.push(document);
    characters += document.text.length;
  }
  if (batch.length) yield batch;
}
