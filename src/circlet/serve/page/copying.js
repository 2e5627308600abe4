// Copies text, and makes a shell command of a request.

/** A command that asks the same question in a shell. With a token, it names a variable and never the token itself. */
export function asCurl(model, question, withToken) {
  const address = new URL(`v1/models/${encodeURIComponent(model)}/suggest`, document.baseURI);
  address.search = "";
  address.hash = "";
  const token = withToken ? ' -H "Authorization: Bearer $CIRCLET_TOKEN"' : "";
  return `curl ${address} -H 'Content-Type: application/json'${token} -d ${quoted(JSON.stringify(question))}`;
}

/** A text as one word of a POSIX shell. */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Copy a text; whether it worked. Without HTTPS, only localhost has the clipboard, and the old way still works. */
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (error) {
      if (error.name !== "NotAllowedError") throw error;
    }
  }
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.className = "visually-hidden";
  area.value = text;
  document.body.append(area);
  area.select();
  const worked = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return worked;
}
