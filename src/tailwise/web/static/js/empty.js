/** What is said when there is no image to show, and what to do about it. */
import { byId, counted, h, icon } from './dom.js';
import { look } from './link.js';
import { go } from './nav.js';
import { nextRoundPanel } from './next_round.js';
import { REPLACED, WHAT_TO_DO } from './save_status.js';
import { liveClasses, store } from './state.js';
import { shown } from './timeline.js';

/** @typedef {import('./state.js').PageState} PageState */

/** Why there is no image; null when there is one. @param {PageState} state @returns {string|null} */
export function emptiness(state) {
  const { link, server, line, dry } = state;
  if (link === 'denied') return 'denied';
  if (!server) return link === 'away' || link === 'replaced' ? link : 'starting';
  if (shown(line)) return null;
  if (!server.images.usable) return 'no images';
  if (!liveClasses(state).length) return 'no classes';
  if (!server.round) return 'no round';
  if (server.round.complete) return 'complete';
  if (link === 'away' || link === 'replaced') return link;
  if (state.waiting || state.seen < state.saved) return 'soon';
  if (dry) return state.elsewhere && server.round.remaining <= state.elsewhere ? 'in another tab' : 'with others';
  return 'loading';
}

/** @param {string} symbol @param {string} title @param {(string|Node|null|false)[]} rest */
function message(symbol, title, ...rest) {
  const paragraphs = rest.filter(Boolean).map((part) => (typeof part === 'string' ? h('p', { class: 'soft' }, part) : part));
  return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon(symbol)), h('h1', {}, title), ...paragraphs);
}

export function makeEmpty() {
  const place = byId('empty');
  const next = nextRoundPanel();
  store.watch((state) => [emptiness(state), state.server?.round?.id, state.server?.conflicts, state.server?.round?.answered, state.trouble], (state) => {
    const why = emptiness(state);
    const made = why ? MESSAGES[why](state, next) : null;
    if (made) made.dataset.why = why ?? '';
    place.replaceChildren(...(made ? [made] : []));
  });
}

/** @type {Record<string, (state: PageState, next: HTMLElement) => HTMLElement>} */
const MESSAGES = {
  starting: () => message('images', 'One moment …'),
  loading: () => message('images', 'Getting images …'),
  away: ({ trouble }) => message('away', 'The server does not answer', trouble, 'This page tries again by itself. If it was stopped, start it again with “tailwise label”.', retryButton()),
  replaced: () => message('away', 'Nothing is saved now', REPLACED, WHAT_TO_DO, retryButton()),
  denied: ({ trouble }) => message('key', 'The token does not fit', trouble || 'The server was started with another token.', 'Open the link that “tailwise label” has printed, or paste it here. Answers that wait in this browser are kept.', tokenForm()),
  'no images': () => message('images', 'No images yet', 'This campaign has no image that can be shown.', 'Stop the server, add a folder with “tailwise init CAMPAIGN --images FOLDER”, and start it again with “tailwise label”. If the files are there, “tailwise doctor CAMPAIGN” says why none can be used.'),
  'no classes': () => message('images', 'No classes yet', h('p', { class: 'soft' }, 'The owner adds them in ', h('a', { href: '#classes' }, 'Dashboard → Classes'), '; they appear here at once.')),
  'no round': (_, next) => message('spark', 'No round yet', 'The first batch is chosen for variety: without labels there is no model to ask yet.', next),
  complete: ({ server }, next) =>
    message('check', `Round ${server?.round?.id} is complete`, `${answeredText(server?.round)}, and all of it is on disk. Now the model learns from it and chooses the images that help most.`, next, conflictHint(server?.conflicts ?? 0), backHint()),
  soon: () => message('check', 'Saving …', 'The last answers are on their way.'),
  'in another tab': ({ elsewhere }) => message('images', 'The rest is in your other tab', `${counted(elsewhere, 'image is', 'images are')} open there, or being saved.`),
  'with others': ({ server }) =>
    message('people', 'Nothing left for you in this round', `${counted(server?.round?.remaining ?? 0, 'image still waits', 'images still wait')}: for answers of other people, or with people who hold them now. What they leave comes back here by itself.`, backHint()),
};

/** @param {import('./types.js').Round|null|undefined} round */
function answeredText(round) {
  const { answered = 0, skipped = 0 } = round ?? {};
  return `${counted(answered - skipped, 'image is', 'images are')} answered${skipped ? `, ${skipped} skipped` : ''}`;
}

/** @param {number} conflicts */
function conflictHint(conflicts) {
  if (!conflicts) return null;
  const settle = h('button', { type: 'button', class: 'link', onclick: () => go('conflicts') }, 'Settle them first');
  return h('p', { class: 'hint' }, `${counted(conflicts, 'image has', 'images have')} different answers. `, settle);
}

function backHint() {
  return h('p', { class: 'soft small keys-only' }, 'To look back and change an answer, press ←');
}

function retryButton() {
  return h('button', { type: 'button', class: 'main', onclick: () => look() }, 'Try again now');
}

function tokenForm() {
  const box = /** @type {HTMLInputElement} */ (h('input', { type: 'text', 'aria-label': 'Token or link', placeholder: 'Token or link', autocomplete: 'off', spellcheck: false }));
  return h('form', { class: 'token', onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    const pasted = box.value.trim();
    const token = /[?&]token=([^&#]+)/.exec(pasted)?.[1] ?? encodeURIComponent(pasted);
    if (token) location.assign(`/?token=${token}`);
  } }, box, h('button', { type: 'submit', class: 'main' }, 'Open'));
}
