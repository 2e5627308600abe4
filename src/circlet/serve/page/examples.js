// Example texts for an empty page: sentences for known datasets, names of the most common labels for others.

const SENTENCES = {
  pydocs: [
    "open a connection to a mail server and send a message",
    "solve a sparse symmetric eigenvalue problem",
    "run coroutines concurrently in an event loop",
    "split the data into training and test sets for cross-validation",
  ],
};

/** Up to four texts to try with this model. */
export async function examplesFor(card, api) {
  const known = SENTENCES[card.training?.data];
  if (known) return known;
  const { labels } = await api.model(card.id, "/labels?limit=4");
  return labels.map(({ label }) => label);
}
