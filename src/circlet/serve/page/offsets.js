// Positions in a text. The service counts Unicode code points, as Python does; JavaScript's strings and the DOM count
// UTF-16 code units, of which an emoji or a rare Chinese character takes two.

/** A function from code point offsets in `text` to UTF-16 offsets. Offsets past the end become the end. */
export function pointsToUnits(text) {
  const units = [];
  let unit = 0;
  for (const character of text) {
    units.push(unit);
    unit += character.length;
  }
  units.push(unit);
  if (units.length === text.length + 1) return (point) => clamp(point, text.length); // no pairs: both count alike
  return (point) => units[clamp(point, units.length - 1)];
}

/**
 * Ranges `[start, end, value]` as sorted ranges that do not overlap: values add up where ranges do, and neighbors of
 * the same value become one. Empty ranges and those that add up to nothing are left out.
 */
export function mergeSpans(spans) {
  const changes = new Map();
  const change = (at, value, count) => {
    const [sum, open] = changes.get(at) ?? [0, 0];
    changes.set(at, [sum + value, open + count]);
  };
  for (const [start, end, value] of spans) {
    if (end > start) {
      change(start, value, 1);
      change(end, -value, -1);
    }
  }
  const merged = [];
  let sum = 0;
  let open = 0;
  let from = 0;
  for (const at of [...changes.keys()].sort((a, b) => a - b)) {
    const last = merged.at(-1);
    if (open > 0 && sum !== 0) {
      if (last && last[1] === from && last[2] === sum) last[1] = at;
      else merged.push([from, at, sum]);
    }
    const [value, count] = changes.get(at);
    open += count;
    sum = open === 0 ? 0 : sum + value; // nothing open: drop what rounding left
    from = at;
  }
  return merged;
}

/** The text in pieces `{text, value}`: the values of `spans` (merged, in UTF-16 offsets), and 0 elsewhere. */
export function pieces(text, spans) {
  const found = [];
  let from = 0;
  for (const [start, end, value] of spans) {
    if (start > from) found.push({ text: text.slice(from, start), value: 0 });
    if (end > start) found.push({ text: text.slice(start, end), value });
    from = end;
  }
  if (from < text.length) found.push({ text: text.slice(from), value: 0 });
  return found;
}

function clamp(value, most) {
  return Math.max(0, Math.min(value, most));
}
