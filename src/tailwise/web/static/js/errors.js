/** Labels that are likely wrong, worst first: keep the label, take the suggestion, or give another class. */
import { byId, counted, h, nameTag, percent } from './dom.js';
import { jobMessage, makeAnotherClass, makeFinder, makeLargeImage, thumbStrip, undoButton, verdictButton, viewMessage } from './review_desk.js';
import { answerText, className, isBlind, isOwner, OWNER_ONLY, store } from './state.js';
import { toast } from './toast.js';

/** @typedef {import('./review_desk.js').Shown} Shown */
/** @typedef {Shown & {given: number, suggested: number, probability: number, likely: boolean, annotators: string[], neighbours: Shown[]}} Finding */
/** @typedef {{items: Finding[], likely: number, checked: number, labels: number, enough: boolean, installed: boolean, fresh: boolean, job: import('./types.js').Job}} Reply */
/** @typedef {{item: Finding, key: string, class_id: number|null, annotator: string}} Decision */

/** @param {{answering: any, quiet: () => Promise<void>}} session */
export function makeView({ answering }) {
  const place = byId('errors');
  /** @type {Reply|null} */ let reply = null;
  /** @type {any} */ let trouble = null;
  /** @type {Decision[]} */ let made = []; // here, since the page was opened
  /** @type {Finding[]} */ let back = []; // undone here, until the server lists them again
  let at = 0;
  const large = makeLargeImage('The image whose label may be wrong', move);
  const another = makeAnotherClass(decide);

  const finder = makeFinder('/api/review/errors', (found) => found.installed && found.enough, (found, why) => {
    const now = items()[at]?.image;
    if (found) {
      back = back.filter((one) => !found.items.some((/** @type {Finding} */ item) => item.image === one.image));
      reply = { ...found, items: [...back, ...found.items], likely: found.likely + back.filter((one) => one.likely).length };
    }
    trouble = why;
    at = placeOf(now ?? '');
    if (!another.isOpen()) draw(); // nothing moves while somebody picks a class
  });

  /** Those that are left, of two at once the ones that were decided here are left out at once. */
  const items = () => (reply?.items ?? []).filter((item) => !made.some((one) => one.item.image === item.image));

  /** @param {number|null} class_id */
  function decide(class_id) {
    const item = items()[at];
    if (!item || hidden()) return;
    back = back.filter((one) => one !== item);
    made.push({ item, class_id, key: answering.settle(item.image, class_id, 'review'), annotator: store.get().annotator });
    const name = answerText(store.get(), { kind: class_id === null ? 'other' : 'label', class_id });
    toast(class_id === item.given ? `Kept: “${name}”` : `Changed to “${name}”`);
    draw();
  }

  /** Take the last decision back, and show its image again. */
  function undo() {
    const last = made.findLast((one) => one.annotator === store.get().annotator);
    if (!last) return toast('Nothing to undo here; earlier decisions are undone in Conflicts (c)');
    made = made.filter((one) => one !== last);
    back.push(last.item);
    void answering.unsettle(last.item.image, last.key);
    if (reply && !reply.items.some((one) => one.image === last.item.image)) reply = { ...reply, items: [last.item, ...reply.items], likely: reply.likely + Number(last.item.likely) };
    toast('Undone');
    goTo(last.item.image);
  }

  /** @param {string} image */
  const placeOf = (image) => Math.max(0, items().findIndex((item) => item.image === image));

  /** @param {string} image */
  function goTo(image) {
    at = placeOf(image);
    draw();
  }

  /** @param {number} step */
  function move(step) {
    at = Math.max(0, Math.min(items().length - 1, at + step));
    another.close();
    draw();
  }

  const hidden = () => isBlind(store.get()) || !isOwner(store.get());

  function draw() {
    const all = items();
    at = Math.min(at, Math.max(0, all.length - 1));
    place.dataset.ready = String(all.length);
    const item = hidden() || trouble ? undefined : all[at];
    const undoing = made.some((one) => one.annotator === store.get().annotator) ? undoButton(undo, 'Take the last decision back') : '';
    const head = h('header', { class: 'view-head' }, h('h1', {}, title(all)), undoing, item ? h('p', { class: 'stats' }, status(reply)) : '');
    if (item) large.show(item);
    place.replaceChildren(head, item ? desk(item) : nothing(), item && all.length > 1 ? thumbStrip(all, { label: 'Label errors', at, go: (to) => move(to - at) }) : '');
  }

  /** @param {Finding[]} all */
  function title(all) {
    if (!reply?.checked || hidden() || trouble) return 'Label errors';
    return `${counted(all.filter((item) => item.likely).length, 'likely error')} of ${counted(reply.labels, 'label')}`;
  }

  /** @param {Finding} item */
  function desk(item) {
    const state = store.get();
    const given = className(state, item.given);
    const suggested = className(state, item.suggested);
    const by = item.annotators.length ? [' by ', nameTag(item.annotators.join(', '))] : [];
    return h('div', { class: 'desk' }, large.element,
      h('div', { class: 'verdicts' },
        h('p', { class: 'finding' }, 'Labelled ', h('b', {}, nameTag(given)), ...by, ', looks like ', h('b', {}, nameTag(suggested)), '.'),
        !item.likely && h('p', { class: 'soft small' }, 'Doubtful rather than likely wrong: the likely ones come first.'),
        verdictButton({ key: '⏎', name: 'change', main: true, text: ['Change to ', nameTag(suggested)], detail: [percent(item.probability)], act: () => decide(item.suggested) }),
        verdictButton({ key: 'k', name: 'keep', text: ['Keep ', nameTag(given)], act: () => decide(item.given) }),
        another.element,
        item.neighbours.length > 0 && h('h2', {}, 'Labelled ', nameTag(suggested), ', and most similar'),
        item.neighbours.length > 0 && thumbStrip(item.neighbours, { label: `Labelled ${suggested}` })));
  }

  function nothing() {
    if (!isOwner(store.get())) return viewMessage('key', 'The owner reviews labels', OWNER_ONLY);
    if (hidden()) return viewMessage('blind', 'Suggestions are hidden', 'This view compares labels with what the model thinks. In a campaign that is labelled blind it stays closed; otherwise b shows suggestions again.');
    if (trouble) return viewMessage('away', 'The labels cannot be checked now', String(trouble.message ?? trouble));
    if (!reply) return viewMessage('images', 'One moment …');
    if (!reply.installed) return viewMessage('key', 'This view needs cleanlab', h('p', {}, h('code', {}, "pip install 'tailwise[review]'")), 'Install it where the server runs, and start the server again.');
    if (!reply.enough) return viewMessage('images', 'Too few labels to check', 'Label at least 2 images in each of 2 classes first: each label is checked by a model that learnt from the others.');
    if (reply.job.state === 'running') return jobMessage('Checking the labels …', reply.job);
    if (reply.job.state === 'failed' && !reply.fresh) return viewMessage('away', 'The labels could not be checked', reply.job.error ?? '');
    return viewMessage('check', made.length ? 'All looked at' : 'No label looks wrong', `${counted(reply.checked, 'label was', 'labels were')} checked, each by a model that had not seen it.`);
  }

  return {
    open: finder.open,
    close: finder.close,
    keys: {
      enter: () => items()[at] && decide(items()[at].suggested), keep: () => items()[at] && decide(items()[at].given),
      other: () => decide(null), filter: () => items()[at] && another.open(), undo, zoom: large.zoom,
      left: () => move(-1), right: () => move(1),
    },
  };
}

/** @param {Reply|null} reply */
function status(reply) {
  if (reply?.job.state === 'running') return 'Labels have changed: checking again …';
  return reply && reply.checked < reply.labels ? `${counted(reply.checked, 'label was', 'labels were')} checked; one that is alone in its class cannot be` : '';
}
