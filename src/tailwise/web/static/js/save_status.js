/** The word in the corner: Saved after the commit and not before; and a banner when something needs attention. */
import { byId, counted, h, icon } from './dom.js';
import { store } from './state.js';

export const REPLACED = 'The campaign file was replaced or deleted while the server was running.';
export const WHAT_TO_DO = 'Ask the person who runs the server to put the file back and start “tailwise label” again. Your answers are sent then.';

/** @param {import('./state.js').PageState} state @returns {{state: string, text: string, icon: string|null}} */
export function statusOf({ waiting, saved, link, refusals }) {
  if (waiting && link !== 'up') return { state: 'kept', text: `Offline: ${waiting} waiting to sync`, icon: 'away' };
  if (waiting) return { state: 'saving', text: waiting > 1 ? `Saving ${waiting} …` : 'Saving …', icon: null };
  if (refusals.length) return { state: 'refused', text: `${refusals.length} refused`, icon: 'close' };
  if (link === 'away') return { state: 'away', text: 'Offline', icon: 'away' };
  if (link === 'replaced') return { state: 'away', text: 'Not saving', icon: 'away' };
  return saved ? { state: 'saved', text: 'Saved', icon: 'check' } : { state: 'ready', text: 'Ready', icon: null };
}

/** @param {{retry: () => void, forget: () => void}} acts */
export function makeSaveStatus(acts) {
  const chip = byId('saving');
  store.watch((state) => [state.waiting, state.saved, state.link, state.refusals], (state) => {
    const status = statusOf(state);
    chip.dataset.state = status.state;
    chip.title = { kept: 'Kept in this browser, sent when the server is back', saved: 'All answers are on the server’s disk' }[status.state] ?? '';
    chip.replaceChildren(status.icon ? icon(status.icon) : h('span', { class: 'dot' }), h('span', { class: 'saving-text' }, status.text));
  });
  store.watch((state) => [state.waiting, state.link, state.refusals, state.lasting, state.server === null], (state) => {
    const banner = byId('banner');
    const parts = bannerOf(state, acts);
    banner.hidden = parts === null;
    banner.replaceChildren(...(parts ?? []));
    banner.dataset.tone = state.link === 'up' ? 'bad' : 'wait';
  });
  addEventListener('beforeunload', (event) => {
    const { waiting, lasting } = store.get();
    if (waiting && !lasting) event.preventDefault(); // only then would something be lost
  });
}

/** @param {import('./state.js').PageState} state @param {{retry: () => void, forget: () => void}} acts */
function bannerOf({ waiting, link, refusals, lasting, server }, acts) {
  if (link === 'replaced' && server) return [icon('away'), h('span', {}, `${REPLACED} ${keptText(waiting, lasting)} ${WHAT_TO_DO}`)];
  if (link === 'away' && server) {
    const kept = waiting ? ` ${counted(waiting, 'answer is', 'answers are')} kept in this browser and sent when it is back.` : ' Your answers are safe.';
    return [icon('away'), h('span', {}, 'The server is away.', lasting ? `${kept} You can go on.` : ' Do not close this page: this browser keeps nothing.')];
  }
  if (refusals.length) {
    const last = refusals[refusals.length - 1].message;
    return [
      icon('close'), h('span', {}, `${counted(refusals.length, 'answer was', 'answers were')} refused: ${last}`),
      h('button', { type: 'button', class: 'link', onclick: acts.retry }, 'Try again'),
      h('button', { type: 'button', class: 'link', onclick: acts.forget }, 'Discard'),
    ];
  }
  return null;
}

/** @param {number} waiting @param {boolean} lasting */
function keptText(waiting, lasting) {
  if (!lasting) return 'Do not close this page: this browser keeps nothing.';
  return waiting ? `Your answers are kept in this browser (${waiting}).` : 'Your answers are kept in this browser.';
}
