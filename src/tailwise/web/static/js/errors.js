/** The label errors view. */
import { byId, h } from './dom.js';

/** @param {outbox: any, answering: any, quiet: () => Promise<void>} _session */
export function makeView(_session) {
  const place = byId('errors');
  place.append(h('header', { class: 'view-head' }, h('h1', {}, 'Label errors')));
  return { open() {} };
}
