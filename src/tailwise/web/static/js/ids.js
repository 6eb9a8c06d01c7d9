/** Random names: of tabs, and the idempotency keys of answers. Works without a secure context, as on a phone in the LAN. */

/** @param {number} bytes */
export function randomHex(bytes) {
  const values = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(values, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The key of one answer. */
export function newKey() {
  return `p${randomHex(12)}`;
}

/** Keys of answers that were given together, and are undone together. @param {number} count */
export function newBatch(count) {
  const batch = `g${randomHex(8)}`;
  return Array.from({ length: count }, (_, at) => `${batch}-${at}`);
}

/** What is undone in one go: the batch that a key belongs to, or the key itself. @param {string} key */
export function batchOf(key) {
  return key.startsWith('g') ? key.split('-')[0] : key;
}
