/** The history of the rounds: what was hoped for, what came, and how good the choice is proven to be. */
import { get } from './api.js';
import { legend, progressBar } from './cards.js';
import { byId, counted, h, icon, nameTag } from './dom.js';
import { note } from './link.js';
import { nextRoundPanel } from './next_round.js';
import { className, shortName, store } from './state.js';

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
    h('ul', { class: 'balance wide' }, ...round.counts.map((count) => row(state, count, most))),
    details(round));
}

/** @param {PastRound} round */
function facts(round) {
  const { gap = null } = round.certificate ?? {};
  const texts = [`${round.answered} of ${counted(round.budget, 'image')}`, ...(round.strategy === 'boundary' ? ['covers the pool'] : [])];
  const items = texts.map((text) => h('span', { class: 'fact' }, text));
  if (gap !== null) items.push(h('span', { class: 'fact sure' }, icon('check'), gap <= 1e-6 ? 'the best choice, certified' : 'close to the best choice, certified'));
  return items;
}

/** How the batch was chosen, for those who want to know. @param {PastRound} round */
function details(round) {
  const { gap = null, status = '' } = round.certificate ?? {};
  const rows = [['Strategy', round.strategy], ['Balance', round.balance]];
  if (round.lam !== null && !['none', '0'].includes(round.balance)) rows.push(['λ', String(Number(round.lam.toPrecision(3)))]);
  if (status) rows.push(['Solver', status]);
  if (gap !== null) rows.push(['Gap', gap <= 1e-6 ? (status === 'optimal chunks' ? '0: each chunk is optimal' : '0: optimal') : `at most ${(100 * gap).toPrecision(2)}\u202f%`]);
  return h('details', { class: 'details' }, h('summary', {}, 'Details'), h('dl', {}, ...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])));
}

/** @param {import('./state.js').PageState} state @param {Count} count @param {number} most */
function row(state, count, most) {
  const name = className(state, count.class_id);
  const bar = h('span', { class: 'old' });
  const mark = h('span', { class: 'mark', hidden: count.expected === null });
  bar.style.width = `${(100 * count.realised) / most}%`;
  mark.style.insetInlineStart = `${(100 * (count.expected ?? 0)) / most}%`;
  const says = `${name}: ${count.realised} labelled${count.expected === null ? '' : `, ${count.expected.toFixed(1)} expected`}`;
  return h('li', { title: says }, nameTag(name, shortName(state.server?.classes ?? [], count.class_id, 26)), h('span', { class: 'track' }, bar, mark), h('span', { class: 'count' }, count.realised));
}
