/** Requests to the server: JSON in, JSON out, and three kinds of failure that the rest of the page distinguishes. */

const PATIENCE = 20_000; // ms until an answer is no longer awaited; the same key is then sent again

/** No answer at all: the server is down, the network is gone, or it took too long. */
export class Away extends Error {}

/** An answer that says no. */
export class Refused extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status >= 500 || this.status === 429 || this.status === 408 || this.code === 'busy';
  }

  /** Whether the campaign's file was deleted or replaced: nothing is saved until the server is started again. */
  get replaced() {
    return this.code === 'ledger_replaced';
  }

  /** Whether this page may not come in, by its token or its address. An annotator's link fits, but not for everything. */
  get denied() {
    return this.status === 401 || (this.status === 403 && this.code !== 'owner_only');
  }
}

/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: 'same-origin', cache: 'no-store', signal: AbortSignal.timeout(PATIENCE), ...options });
  } catch (trouble) {
    throw new Away(String(trouble));
  }
  const body = await bodyOf(response);
  if (response.ok) return body;
  const error = body?.error ?? {};
  throw new Refused(response.status, String(error.code ?? ''), String(error.message ?? `the server answered ${response.status}`));
}

/** @param {Response} response */
async function bodyOf(response) {
  try {
    return await response.json();
  } catch (trouble) {
    if (response.ok) throw new Away(`the answer was cut off: ${trouble}`);
    return null;
  }
}

/** @param {string} path @param {Record<string, string|number>} [query] */
export function get(path, query = {}) {
  const text = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString();
  return ask(text ? `${path}?${text}` : path, { method: 'GET' });
}

/** @param {string} path @param {object} body @param {RequestInit} [options] */
export function post(path, body, options = {}) {
  return ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), ...options });
}

/**
 * The address of an image, no longer on its longest side than `size`. The seal of its bytes is part of it: what the
 * browser has kept under an address is what is there.
 * @param {{key: string, seal?: string}} image @param {160|512|1280|2048|8192} size
 */
export function imageUrl({ key, seal }, size) {
  return `/image/${encodeURIComponent(key)}?size=${size}${seal ? `&seal=${seal}` : ''}`;
}
