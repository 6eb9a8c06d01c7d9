/** What was answered before the page was opened: what the server has, and what still waits in the outbox. */

/** @typedef {import('./types.js').Op} Op */
/** @typedef {{key: string, image: string, seal?: string, kind: string, class_id: number|null}} PastAnswer */

/**
 * Oldest first. Answers that wait count as given, undos that wait as done; an answer that is in both is there once.
 * @param {PastAnswer[]} history of the server, newest first
 * @param {Op[]} waiting in their order
 * @returns {PastAnswer[]}
 */
export function pastOf(history, waiting) {
  const past = new Map([...history].reverse().map((one) => [one.key, one]));
  for (const op of waiting) {
    if (op.type === 'answer') past.set(op.key, { key: op.key, image: op.image, seal: op.seal, kind: String(op.kind), class_id: op.class_id ?? null });
    else if (op.type === 'undo' && op.undoes) past.delete(op.undoes);
  }
  return [...past.values()];
}
