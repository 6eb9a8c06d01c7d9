/** Short notes at the edge of the screen, gone after a moment; screen readers announce them. */
import { byId, h } from './dom.js';

const LASTS = 3_200; // ms
const MOST = 3;

/** @param {string} text @param {{lasts?: number, tone?: 'plain'|'bad'}} [how] */
export function toast(text, { lasts = LASTS, tone = 'plain' } = {}) {
  const place = byId('toasts');
  const note = h('p', { class: 'toast', 'data-tone': tone }, text);
  place.append(note);
  while (place.children.length > MOST) place.firstElementChild?.remove();
  setTimeout(() => note.remove(), lasts);
}
