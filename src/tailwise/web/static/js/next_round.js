/** "Train and choose the next batch": started here, runs in the server, with its progress; labelling can go on meanwhile. */
import { Refused, post } from './api.js';
import { progressBar } from './cards.js';
import { counted, h, icon } from './dom.js';
import { look, note } from './link.js';
import { isOwner, store } from './state.js';
import { toast } from './toast.js';

const LARGEST = 1_000_000;

/** One panel, made once, so that what was typed stays while the progress changes. @param {{quiet?: boolean}} [how] */
export function nextRoundPanel({ quiet = false } = {}) {
  const budget = /** @type {HTMLInputElement} */ (h('input', { type: 'number', min: '1', max: String(LARGEST), inputMode: 'numeric', class: 'budget' }));
  const button = h('button', { class: quiet ? 'plain' : 'main', type: 'button', 'data-act': 'next', onclick: start }, icon('spark'), h('span', {}, ''));
  const size = h('label', { class: 'size' }, 'Images in the batch', budget);
  const again = /** @type {HTMLInputElement} */ (h('input', { type: 'checkbox', 'data-act': 'skipped-too' }));
  const againText = h('span', {});
  const skips = h('label', { class: 'size', hidden: true }, again, againText);
  const summary = h('p', { class: 'summary soft small' });
  const bar = h('div', { class: 'job', hidden: true });
  const notify = notifyButton();
  const fault = h('p', { class: 'fault', role: 'alert' });
  const row = h('div', { class: 'next-row' }, button, size);
  const ask = h('p', { class: 'soft small', 'data-owner-only': '' }, 'The owner of this campaign starts the next round. It opens here by itself.');
  const panel = h('div', { class: 'next-round' }, row, skips, summary, bar, fault, ask);
  let asked = false;
  for (const box of [budget, again]) box.addEventListener('input', () => update(store.get()));

  async function start() {
    if (!budget.reportValidity()) return;
    asked = true;
    fault.textContent = '';
    button.toggleAttribute('disabled', true);
    try {
      const { server } = store.get();
      const skipped = withSkipped(server);
      const left = leftOf(server, skipped);
      const usual = left && left < (server?.next?.budget ?? 0) ? { budget: left } : {}; // all that are left
      await post('/api/next', { ...(budget.value ? { budget: Number(budget.value) } : usual), skipped });
    } catch (trouble) {
      if (trouble instanceof Refused && !trouble.denied) fault.textContent = trouble.message;
      else note(trouble);
      asked = false;
    }
    await look();
    asked = false;
    update(store.get());
  }

  /** @param {import('./state.js').PageState} state */
  function update(state) {
    const { server, link } = state;
    const owner = isOwner(state);
    const job = server?.job;
    const running = job?.state === 'running';
    const text = server?.round ? 'Train and choose the next batch' : 'Choose the first batch';
    button.lastElementChild?.replaceChildren(running ? stageOf(job) : text);
    const left = server?.round && !server.round.complete ? server.round.remaining : 0;
    button.toggleAttribute('disabled', running || asked || link !== 'up' || left > 0);
    const pool = leftOf(server, withSkipped(server));
    const usual = Math.min(server?.next?.budget ?? 0, pool);
    budget.placeholder = String(usual || '');
    row.hidden = !owner;
    ask.hidden = owner || running;
    budget.max = String(pool || LARGEST);
    size.hidden = running || left > 0;
    summary.hidden = running || !owner || (!server?.next && !left);
    summary.textContent = left ? `First ${counted(left, 'image')} of this round ${left === 1 ? 'has' : 'have'} to be answered.` : batchText(pool, budget.value ? Number(budget.value) : usual);
    skips.hidden = running || !server?.next?.skipped || !owner;
    againText.textContent = `Also choose from ${counted(server?.next?.skipped ?? 0, 'image that was', 'images that were')} skipped`;
    bar.hidden = !running;
    if (running) {
      const share = Math.round(100 * (job.share ?? 0));
      bar.replaceChildren(progressBar(share, 100, 'Choosing the next batch'), h('p', { class: 'soft small', title: job.what ?? '' }, stageOf(job), h('span', { class: 'end' }, `${share}\u202f%`)), notify);
    }
    if (job?.state === 'failed') fault.textContent = job.error ?? 'Choosing the next batch failed.';
    else if (running) fault.textContent = '';
  }

  /** @param {import('./types.js').ServerState|null} server */
  function withSkipped(server) {
    return again.checked && Boolean(server?.next?.skipped);
  }

  store.watch((state) => [state.server, state.link], update);
  return panel;
}

/** What the job is doing, in a word; the server's own words are in the tooltip. @param {import('./types.js').Job} job */
export function stageOf({ share, what = '' }) {
  if (/^(starting|features)/.test(what)) return 'Looking at the images…';
  const done = share ?? 0;
  return done < 0.7 ? 'Learning…' : done < 0.95 ? 'Choosing…' : 'Almost done…';
}

/** How many images there are to choose from. @param {import('./types.js').ServerState|null} server @param {boolean} skipped */
function leftOf(server, skipped) {
  const { left = 0, skipped: more = 0 } = server?.next ?? {};
  return skipped ? left + more : left;
}

/** @param {number} left @param {number} size */
function batchText(left, size) {
  if (!left) return 'No image is left to choose from.';
  if (size > left) return `Only ${counted(left, 'image is', 'images are')} left to choose from.`;
  if (left === 1) return 'The one image that is left will be chosen.';
  return size === left ? `All ${counted(left, 'image')} that are left will be chosen.` : `${size.toLocaleString('en')} of ${counted(left, 'image')} will be chosen.`;
}

/** A note on the page; a notification of the system too, while the page is not in front and the person has allowed it. @param {string} text @param {{tone?: 'bad', lasts?: number}} [how] */
function announce(text, how) {
  toast(text, how);
  if (!document.hidden || !('Notification' in globalThis) || Notification.permission !== 'granted') return;
  const shown = new Notification(document.title, { body: text, tag: 'tailwise-round' });
  shown.onclick = () => { globalThis.focus(); shown.close(); };
}

/** A link that asks for a notification when a running job has ended; nothing where it cannot or may not ask. */
function notifyButton() {
  const button = h('button', { class: 'link', type: 'button', 'data-act': 'notify', hidden: true, onclick: async () => { await Notification.requestPermission(); show(); } }, 'Notify me when it is done');
  const show = () => void (button.hidden = !('Notification' in globalThis) || Notification.permission !== 'default' || !isSecureContext);
  show();
  return button;
}

/** Say when a batch that was being chosen is there, or has failed. */
export function announceRounds() {
  /** @type {number|null} */ let round = null;
  let running = false;
  store.watch((state) => [state.server?.round?.id, state.server?.job?.state], ({ server }) => {
    if (!server) return;
    const now = server.round?.id ?? null;
    if (round !== null && now !== null && now !== round) announce(`Round ${now} is ready`);
    if (running && server.job?.state === 'failed') announce(`No new batch: ${server.job.error ?? 'it failed'}`, { tone: 'bad', lasts: 8_000 });
    running = server.job?.state === 'running';
    round = now ?? round;
  });
}
