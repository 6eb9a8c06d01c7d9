/** The history of the rounds: what was hoped for, what came, and how good the choice is proven to be. */
import { get } from './api.js';
import { legend, progressBar } from './cards.js';
import { byId, counted, h, icon, nameTag } from './dom.js';
import { note } from './link.js';
import { nextRoundPanel } from './next_round.js';
import { className, store } from './state.js';

/** @typedef {{class_id: number, expected: number|null, target: number|null, realised: number}} Count */
/** @typedef {{status: string, gap: number|null}} Certificate */
/**
 * @typedef {{id: number, opened_at: number, closed_at: number|null, budget: number, answered: number, strategy: string,
 *   balance: string, lam: number|null, counts: Count[], certificate: Certificate|null}} PastRound
 */

export function makeRounds() {
  const place = byId('rounds');
  const list = h('div', { class: 'rounds' });
  place.append(h('header', { class: 'view-head' }, h('h1', {}, 'Rounds'), nextRoundPanel({ quiet: true })), list);

  async function open() {
    try {
      const reply = await get('/api/rounds');
      draw((reply.items ?? []).slice().reverse());
    } catch (trouble) {
      note(trouble);
    }
  }

  /** @param {PastRound[]} rounds newest first */
  function draw(rounds) {
    const state = store.get();
    list.replaceChildren(...(rounds.length ? rounds.map((round) => card(state, round)) : [none()]));
  }

  store.watch((state) => [state.server?.round?.id, state.server?.round?.answered], ({ view }) => view === 'rounds' && void open());
  return { open };
}

function none() {
  return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon('chart')), h('h2', {}, 'No round yet'), h('p', { class: 'soft' }, 'Each batch of images that was chosen and labelled appears here.'));
}

/** @param {import('./state.js').PageState} state @param {PastRound} round */
function card(state, round) {
  const opened = new Date(round.opened_at / 1000);
  const date = opened.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
  const most = Math.max(1, ...round.counts.map((count) => Math.max(count.realised, count.expected ?? 0)));
  const foreseen = round.counts.some((count) => count.expected !== null);
  return h('article', { class: 'card round', 'aria-label': `Round ${round.id}` },
    h('header', {}, h('h2', {}, `Round ${round.id}`), h('span', { class: 'state', 'data-open': round.closed_at === null }, round.closed_at === null ? 'open' : 'closed'), h('time', { class: 'soft small end', dateTime: opened.toISOString() }, date)),
    h('p', { class: 'facts' }, ...facts(round)),
    progressBar(Math.min(round.answered, round.budget), round.budget, `Round ${round.id}`),
    foreseen && legend({ fill: 'labelled', target: 'expected by the model' }),
    h('ul', { class: 'balance wide' }, ...round.counts.map((count) => row(className(state, count.class_id), count, most))));
}

/** @param {PastRound} round */
function facts(round) {
  const texts = [`${round.answered} of ${counted(round.budget, 'image')}`, round.strategy];
  const { gap = null, status = '' } = round.certificate ?? {};
  const chunks = status === 'optimal chunks';
  if (round.strategy === 'boundary' && status === 'greedy') texts.push('covers the pool');
  else if (chunks && round.balance === 'auto') texts.push('exact class quotas');
  else if (round.lam !== null && !['none', '0'].includes(round.balance)) texts.push(`λ = ${Number(round.lam.toPrecision(3))}`);
  const items = texts.map((text) => h('span', { class: 'fact' }, text));
  if (gap !== null) items.push(h('span', { class: 'fact sure', title: `Solver: ${status}` }, icon('check'), gap <= 1e-6 ? (chunks ? 'each chunk certified optimal' : 'certified optimal') : `certified within ${(100 * gap).toPrecision(2)}\u202f%`));
  return items;
}

/** @param {string} name @param {Count} count @param {number} most */
function row(name, count, most) {
  const bar = h('span', { class: 'old' });
  const mark = h('span', { class: 'mark', hidden: count.expected === null });
  bar.style.width = `${(100 * count.realised) / most}%`;
  mark.style.insetInlineStart = `${(100 * (count.expected ?? 0)) / most}%`;
  const says = `${name}: ${count.realised} labelled${count.expected === null ? '' : `, ${count.expected.toFixed(1)} expected`}`;
  return h('li', { title: says, 'aria-label': says }, nameTag(name), h('span', { class: 'track' }, bar, mark), h('span', { class: 'count' }, count.realised));
}
