/** The classes view. */
import { byId, h } from './dom.js';

/** @param {outbox: any, answering: any, quiet: () => Promise<void>} _session */
export function makeView(_session) {
  const place = byId('classes-view');
  place.append(h('header', { class: 'view-head' }, h('h1', {}, 'Classes')));
  return { open() {} };
}
